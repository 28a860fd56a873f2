"use strict";
(() => {
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const ink = () => (dark.matches ? "#e7eaee" : "#1a1d21");
  const themed = () => ({ "font.color": ink(), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" });
  for (const [id, plot] of Object.entries(plots)) {
    const layout = { ...plot.layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    layout.font = { ...layout.font, color: ink() };
    Plotly.newPlot(id, plot.data, layout, { responsive: true, displaylogo: false });
    dark.addEventListener("change", () => Plotly.relayout(id, themed()));
  }
  document.body.dataset.drawn = "yes";
})();
