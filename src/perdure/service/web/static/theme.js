// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  "use strict";
  try {
    const theme = localStorage.getItem("perdure-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // A browser that keeps nothing follows the system.
  }
})();
