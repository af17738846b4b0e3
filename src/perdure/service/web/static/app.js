// What the pages do by themselves: stay current, ask before they act, tell what came of it, draw.
(() => {
  "use strict";

  const LIVE_MS = 2000;
  const SETTLE_MS = 700; // an action that was just planned is often done by then
  const TOAST_MS = 6000;
  const SEARCH_MS = 250;
  const THEMES = ["", "light", "dark"];
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // -- staying current: the live part is fetched again and morphed, so that focus, scroll and selection stay

  const root = document.documentElement;
  let fetching = false;
  let shownLog = null;

  async function refresh() {
    if (fetching || !find("#live")) return;
    fetching = true;
    try {
      await htmx.ajax("GET", location.pathname + location.search, { target: "#live", swap: "outerMorph" });
    } finally {
      fetching = false;
    }
  }

  setInterval(() => {
    if (!document.hidden) refresh();
  }, LIVE_MS);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) refresh();
  });

  const lost = find(".lost");
  document.addEventListener("htmx:error", tellLost);
  document.addEventListener("htmx:response:error", (event) => {
    if (event.detail.ctx.response.status >= 500) tellLost();
  });
  document.addEventListener("htmx:after:swap", () => {
    lost.hidden = true;
    root.classList.remove("stale");
    drawAll();
  });

  // "5 s ago" would be wrong a moment later: while nothing new comes, every instant is told by the clock
  function tellLost() {
    if (!lost.hidden) return;
    const asOf = find("[data-as-of]")?.dataset.asOf ?? "";
    const since = asOf ? ` since ${asOf}. What is shown is as it was then` : ". What is shown may be old";
    find("span", lost).textContent = `No answer from the service${since}; trying again.`;
    lost.hidden = false;
    root.classList.add("stale");
    for (const time of all("#live time[title]")) {
      time.textContent = time.title.startsWith(asOf.slice(0, 10)) ? time.title.slice(11) : time.title;
    }
  }

  // -- a log is read from its end, or from what names the cause

  document.addEventListener("htmx:after:swap", () => {
    const frame = find("#log");
    const list = frame?.firstElementChild;
    if (!list || list === shownLog) return;
    shownLog = list;
    const cause = find(".role-root", frame) ?? find(".role-cascade", frame);
    frame.scrollTop = cause ? cause.offsetTop - frame.offsetTop - frame.clientHeight / 2 : frame.scrollHeight;
  });

  // -- every change carries the session's token

  document.addEventListener("htmx:config:request", (event) => {
    const token = find('meta[name="csrf"]')?.content;
    if (token) event.detail.ctx.request.headers["X-CSRF-Token"] = token;
  });

  // -- asking first

  const dialog = find("#confirm");
  let asked = null;

  document.addEventListener(
    "submit",
    (event) => {
      const form = event.target;
      if (!form.dataset?.confirm || form === asked) {
        asked = null;
        return;
      }
      event.preventDefault();
      event.stopImmediatePropagation();
      ask(form);
    },
    true,
  );

  function ask(form) {
    find("#confirm-words").textContent = form.dataset.confirm;
    const reason = find("#confirm-reason");
    reason.hidden = !("reason" in form.dataset);
    find("input", reason).value = "";
    dialog.returnValue = "no";
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes" || !form.isConnected) return;
      const field = form.elements.namedItem("reason");
      if (field) field.value = find("input", reason).value;
      asked = form;
      form.requestSubmit();
    };
    dialog.showModal();
  }

  // Enter in the reason's field means yes, as in any form; its first button would be "Not now".
  find("#confirm-reason input")?.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    dialog.close("yes");
  });

  // -- telling what came of it

  document.addEventListener("perdure:told", (event) => {
    const toast = document.createElement("p");
    toast.className = event.detail.bad ? "toast toast-bad" : "toast";
    toast.textContent = event.detail.text;
    find(".toasts").append(toast);
    setTimeout(() => toast.remove(), TOAST_MS);
  });
  document.addEventListener("perdure:refresh", () => {
    refresh();
    setTimeout(refresh, SETTLE_MS);
  });

  // what was said was taken in: the form is ready for the next word
  document.addEventListener("perdure:told", (event) => {
    if (!event.detail.bad && event.target.matches?.("form[data-reset]")) event.target.reset();
  });

  // -- choosing

  const toggle = find("[data-theme-toggle]");

  function nameTheme() {
    const words = { "": "as the system", light: "light", dark: "dark" }[root.dataset.theme ?? ""];
    toggle.setAttribute("aria-label", `Theme: ${words}`);
    toggle.title = `Theme: ${words}`;
  }

  toggle?.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    try {
      if (next) localStorage.setItem("perdure-theme", next);
      else localStorage.removeItem("perdure-theme");
    } catch {
      // Then it holds for this page alone.
    }
    nameTheme();
    drawAll(true);
  });
  if (toggle) nameTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));

  document.addEventListener("click", (event) => {
    const chosen = event.target.closest?.("[data-segment]");
    if (!chosen) return;
    for (const other of all("[data-segment]", chosen.parentElement)) {
      other.setAttribute("aria-pressed", String(other === chosen));
    }
  });

  // -- searching while one types

  let typed = 0;
  document.addEventListener("input", (event) => {
    if (!event.target.matches?.("[data-search]")) return;
    clearTimeout(typed);
    typed = setTimeout(() => {
      const query = new URLSearchParams(new FormData(event.target.form));
      for (const [name, value] of [...query]) if (!value) query.delete(name);
      history.replaceState(null, "", query.size ? `${location.pathname}?${query}` : location.pathname);
      refresh();
    }, SEARCH_MS);
  });

  // -- drawing: saved GPU-hours grow upwards, wasted ones downwards

  const charts = new Map();

  function drawAll(again = false) {
    for (const [element, chart] of charts) {
      if (!again && element.isConnected) continue;
      chart.observer.disconnect();
      chart.plot.destroy();
      charts.delete(element);
    }
    for (const element of all("[data-chart]")) draw(element);
  }

  function draw(element) {
    const text = element.dataset.chart;
    const old = charts.get(element);
    if (old?.text === text) return;
    const given = JSON.parse(text);
    const data = [given.times, ...given.series.map((s) => s.values.map((v) => (s.tone === "bad" ? -v : v)))];
    if (old) {
      old.text = text;
      old.plot.setData(data);
      return;
    }
    const plot = new uPlot(chartOptions(element, given), data, element);
    const observer = new ResizeObserver(() => plot.setSize(sizeOf(element)));
    observer.observe(element);
    charts.set(element, { plot, observer, text });
  }

  const sizeOf = (element) => ({ width: Math.max(120, element.clientWidth), height: element.clientHeight });

  // Only a real property is resolved to a plain colour; a custom one would still hold its light-dark().
  function colour(name) {
    const probe = document.createElement("i");
    probe.className = `tone-text-${name}`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function chartOptions(element, given) {
    const axis = {
      stroke: colour("idle"),
      font: `12px ${getComputedStyle(element).fontFamily}`,
      grid: { stroke: colour("idle").replace("rgb(", "rgba(").replace(")", ", 0.16)"), width: 1 },
      ticks: { show: false },
    };
    const hour = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
    return {
      ...sizeOf(element),
      legend: { show: false },
      padding: [8, 18, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: {
        x: { range: (_, low, high) => [low - given.spell / 2, high + given.spell / 2] },
        y: { range: (_, low, high) => [Math.min(low, -high / 4, -0.001) * 1.1, Math.max(high, -low / 4, 0.001) * 1.1] },
      },
      axes: [
        { ...axis, grid: { show: false }, space: 62, size: 26, values: (_, at) => at.map(hour) },
        { ...axis, space: 26, size: 46, values: (_, at) => at.map((v) => String(+Math.abs(v).toPrecision(2))) },
      ],
      series: [
        {},
        ...given.series.map((series) => ({
          label: series.label,
          fill: colour(series.tone),
          stroke: colour(series.tone),
          width: 0,
          points: { show: false },
          paths: uPlot.paths.bars({ size: [0.62, 26], radius: 0.18 }),
        })),
      ],
      hooks: { setCursor: [(plot) => sayCursor(element, given, plot.cursor.idx, hour)] },
    };
  }

  function sayCursor(element, given, index, hour) {
    const here = index !== null && index !== undefined;
    for (const series of given.series) {
      const place = find(`[data-chart-value="${series.tone}"]`, element.parentElement);
      if (place) place.textContent = here ? `${series.values[index]} ${given.unit}` : "";
    }
    const when = find('[data-chart-value="time"]', element.parentElement);
    if (when) when.textContent = here ? `from ${hour(given.times[index])}` : "";
  }

  drawAll();
})();
