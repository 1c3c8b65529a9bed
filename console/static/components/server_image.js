// An image of the service, fetched with the key when it comes into view. Its box has its size before it arrives.
import { html, useEffect, useRef, useState } from "../html.js";
import { acquire, release } from "../images_of_server.js";
import { Icon } from "./icon.js";

export function ServerImage({ path, alt, fit = "cover" }) {
  const box = useRef(null);
  const [near, setNear] = useState(false);
  const [shown, setShown] = useState({ path: null, address: null, failed: false });
  useEffect(() => {
    const watch = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setNear(true), { rootMargin: "200px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (!near || !path) return undefined;
    let wanted = true;
    acquire(path).then(
      (address) => wanted && setShown({ path, address, failed: false }),
      () => wanted && setShown({ path, address: null, failed: true }),
    );
    return () => {
      wanted = false;
      release(path);
    };
  }, [near, path]);
  const address = shown.path === path ? shown.address : null;
  return html`<span class=${`picture ${fit}`} ref=${box}>
    ${address && html`<img src=${address} alt=${alt} decoding="async" />`}
    ${!address && (shown.failed || !path) && html`<${Icon} name="image" />`}
  </span>`;
}
