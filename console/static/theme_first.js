// Sets the chosen theme before the first paint, so that a dark page does not flash white. Not a module: those run later.
(function () {
  try {
    const chosen = localStorage.getItem("protoquad.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's theme applies.
  }
})();
