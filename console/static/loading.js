// Data of a route for a screen: loaded when the screen opens, and again when something of the model has changed.
import { Problem } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./html.js";

/** Calls `load(signal)` whenever `when` changes: {data, error, loading, reload, setData}. Old data stays until new arrives. */
export function useLoaded(load, when = []) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const running = useRef(null);
  const reload = useCallback(async () => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setState((now) => ({ ...now, loading: true }));
    try {
      const data = await load(controller.signal);
      if (!controller.signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (controller.signal.aborted || error.name === "AbortError") return;
      if (!(error instanceof Problem)) console.error(error);
      setState((now) => ({ data: error.status === 0 ? now.data : null, error, loading: false }));
    }
  }, when);
  useEffect(() => {
    reload();
    return () => running.current?.abort();
  }, [reload]);
  const setData = useCallback((data) => setState((now) => ({ ...now, data: data instanceof Function ? data(now.data) : data })), []);
  return { ...state, reload, setData };
}
