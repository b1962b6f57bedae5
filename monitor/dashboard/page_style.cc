#include "brigade/monitor/dashboard/page.h"

namespace brigade::monitor {

absl::string_view PageStyle() {
  return R"css(
:root {
  --ground: #f6f6f3; --panel: #ffffff; --ink: #1c1e22; --muted: #666b73; --rule: #e4e4df;
  --blue: #2a62c9; --teal: #12877a; --amber: #b9740c; --red: #c0392f; --violet: #7450b5;
  --grey: #a3a8ae; --band: #2a62c926; --on-color: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #131519; --panel: #1b1e24; --ink: #e8e9ec; --muted: #979da6; --rule: #2d313a;
    --blue: #7aa7ff; --teal: #4fc3b0; --amber: #e6ae55; --red: #f0857a; --violet: #b79bf0;
    --grey: #5f656e; --band: #7aa7ff2e; --on-color: #131519;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
header, main { max-width: 1280px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 22px; }
.line { display: flex; align-items: baseline; gap: 14px; }
h1 { margin: 0; font-size: 20px; font-weight: 650; letter-spacing: -0.01em; }
#title { margin: 0; color: var(--muted); flex: 1; min-width: 0; white-space: pre-line; }
.state { font-weight: 600; white-space: nowrap; color: var(--muted); }
.state::before {
  content: ""; display: inline-block; width: 8px; height: 8px; margin-right: 7px;
  border-radius: 50%; background: currentColor;
}
.state.runs { color: var(--teal); }
.state.waits { color: var(--amber); }
.state.gone { color: var(--red); }
.progress { margin: 14px 0 20px; align-items: center; }
.track { flex: 1; height: 6px; border-radius: 3px; background: var(--rule); overflow: hidden; }
.track i { display: block; height: 100%; width: 0; background: var(--blue); }
.number, td, text { font-variant-numeric: tabular-nums; }
.progress .number { color: var(--muted); white-space: nowrap; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 12px;
  margin-bottom: 12px;
}
.tile, .panel {
  background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; margin: 0;
}
.tile { padding: 10px 14px 11px; min-width: 0; }
.tile b { display: block; font-size: 21px; font-weight: 600; letter-spacing: -0.01em; }
.tile b { font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile span, small { color: var(--muted); font-size: 12px; font-weight: 400; }
.grid {
  display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px; margin-bottom: 12px;
}
.wide { grid-column: 1 / -1; }
@media (max-width: 800px) { .grid { grid-template-columns: minmax(0, 1fr); } }
.panel { padding: 13px 16px 12px; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: 6px; }
figcaption small { margin-left: 5px; }
svg { display: block; width: 100%; overflow: visible; }
svg text { fill: var(--muted); font-size: 11px; }
svg text.on { fill: var(--on-color); font-size: 10px; pointer-events: none; }
svg text.lane { fill: var(--ink); }
.rule { stroke: var(--rule); stroke-width: 1; shape-rendering: crispEdges; }
.cross { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 2 3; }
.curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }
.odd { stroke: var(--red); stroke-width: 1.5; }
.stack { display: flex; height: 22px; border-radius: 4px; overflow: hidden; margin: 4px 0 8px; }
.stack i { display: block; height: 100%; min-width: 1px; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: 3px 0 3px 14px; text-align: right; font-weight: 400; }
th { color: var(--muted); font-size: 12px; }
td:first-child, th:first-child { text-align: left; padding-left: 0; width: 50%; }
tr + tr td { border-top: 1px solid var(--rule); }
.key {
  display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 8px;
}
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 8px; color: var(--muted); }
.legend { font-size: 12px; }
.legend .key { margin-right: 6px; }
.empty { color: var(--muted); }
#tip {
  position: fixed; pointer-events: none; background: var(--ink); color: var(--ground);
  border-radius: 5px; padding: 5px 9px; font-size: 12px; white-space: pre; z-index: 1;
  font-variant-numeric: tabular-nums;
}
)css";
}

}  // namespace brigade::monitor
