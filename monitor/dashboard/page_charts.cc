#include "brigade/monitor/dashboard/page.h"

namespace brigade::monitor {

absl::string_view PageCharts() {
  return R"js(
'use strict';
const $ = (id) => document.getElementById(id);

// Text that comes from the training is set as text, never as markup.
function element(parent, name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function shape(parent, name, attributes = {}, text = null) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

const color = (name) => `var(--${name})`;

// 1234567 -> "1.23 M", 0.00031 -> "3.10e-4"; of a value that is not there, and of one that is no
// number, as /data.json has them.
function short(value) {
  if (value === undefined) return '–';
  if (value === null || !isFinite(value)) return 'not finite';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return value.toLocaleString('en');
  if (size < 1e-3) return value.toExponential(2);
  for (const [unit, name] of [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e4, ' k']]) {
    if (size >= unit) {
      const scaled = value / (unit === 1e4 ? 1e3 : unit);
      return scaled.toFixed(Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2) + name;
    }
  }
  if (size >= 1000) return Math.round(value).toLocaleString('en');
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4);
}

function bytes(value) {
  const units = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [1024, 'KiB']];
  for (const [unit, name] of units) {
    if (value >= unit) return `${(value / unit).toFixed(value >= 100 * unit ? 0 : 1)} ${name}`;
  }
  return `${value} B`;
}

function seconds(value) {
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 2 : value < 0.1 ? 1 : 0)} ms`;
  if (value < 100) return `${value.toFixed(1)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Round numbers from least to most, about `count` of them.
function ticks(least, most, count) {
  const wanted = (most - least) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) ?? wanted;
  const found = [];
  for (let n = Math.ceil(least / step); n * step <= most + step * 1e-9; ++n) found.push(n * step);
  // Digits that tell ticks apart.
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const text = (value) => Math.abs(value) >= 1e4 || (value !== 0 && digits > 4)
      ? short(value) : value.toFixed(digits);
  return {found, text};
}

function tip(event, text) {
  const box = $('tip');
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = text;
  const size = box.getBoundingClientRect();
  const x = event.clientX + 14 + size.width > innerWidth ? event.clientX - 14 - size.width
                                                         : event.clientX + 14;
  box.style.left = `${x}px`;
  box.style.top = `${Math.max(4, event.clientY - size.height - 10)}px`;
}

// The value below which a share of them is, without those that are no numbers; Infinity of none.
function quantile(values, share) {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))] ?? Infinity;
}

// Each point as the median of those around it; a thirtieth of them on each side.
function smoothed({step, mean}) {
  const around = Math.floor(step.length / 30);
  const means = mean.map((value, i) => value === null ? null
      : quantile(mean.slice(Math.max(0, i - around), i + around + 1), 0.5));
  return {step, mean: means, least: [], most: []};
}

// Curves over steps: [{name, color, points, dots, smooth}], points as /data.json has them. With
// smooth the curve is smoothed, and where it is alone what it is made of is behind it.
function drawCurves(content, all, format) {
  const curves = all.map((curve) => curve.smooth && all.length > 1
      ? {...curve, raw: curve.points, points: smoothed(curve.points)}
      : {...curve, raw: curve.points});
  content.replaceChildren();
  const width = Math.max(content.clientWidth, 200), height = 190;
  const left = 54, right = 10, top = 6, bottom = 34;
  let first = Infinity, last = -Infinity, least = Infinity, most = -Infinity;
  for (const {points, smooth} of curves) {
    // Two steps that are known at one moment have a rate a thousand times that of the others: what
    // is beyond stands at the top.
    const cap = smooth && quantile(points.mean, 0.95) > 0 ? 3 * quantile(points.mean, 0.95)
                                                          : Infinity;
    for (let i = 0; i < points.step.length; ++i) {
      first = Math.min(first, points.step[i]);
      last = Math.max(last, points.step[i]);
      if (points.mean[i] === null) continue;
      least = Math.min(least, points.least[i] ?? points.mean[i]);
      most = Math.max(most, Math.min(cap, points.most[i] ?? points.mean[i]));
    }
  }
  if (least === Infinity) {
    element(content, 'p', {class: 'empty'}, 'no value is finite');
    return;
  }
  if (first === last) { first -= 1; last += 1; }
  if (least === most) {
    const around = Math.abs(least) * 0.1 || 1;
    least -= around;
    most += around;
  }
  const room = 0.06 * (most - least);
  const low = least >= 0 ? Math.max(0, least - room) : least - room, high = most + room;
  const x = (step) => left + (step - first) / (last - first) * (width - left - right);
  const y = (value) =>
      Math.max(top, height - bottom - (value - low) / (high - low) * (height - top - bottom));
  const svg = shape(content, 'svg', {height, viewBox: `0 0 ${width} ${height}`, role: 'img'});
  svg.setAttribute('aria-label', curves.map((curve) => curve.name).join(', '));
  const rows = ticks(low, high, 4), columns = ticks(first, last, Math.floor(width / 110));
  for (const value of rows.found) {
    shape(svg, 'line', {class: 'rule', x1: left, x2: width - right, y1: y(value), y2: y(value)});
    shape(svg, 'text', {x: left - 8, y: y(value) + 4, 'text-anchor': 'end'},
          (format?.tick ?? rows.text)(value));
  }
  for (const step of columns.found) {
    if (!Number.isInteger(Math.round(step * 1e6) / 1e6)) continue;
    shape(svg, 'text', {x: x(step), y: height - bottom + 16, 'text-anchor': 'middle'},
          columns.text(step));
  }
  shape(svg, 'text', {x: width - right, y: height - 3, 'text-anchor': 'end'}, 'step');
  const line = ({step, mean}, attributes) => {
    let path = '', pen = 'M';
    for (let i = 0; i < step.length; ++i) {
      if (mean[i] === null) { pen = 'M'; continue; }
      const at = `${x(step[i]).toFixed(1)} ${y(mean[i]).toFixed(1)}`;
      // One alone is a point.
      path += pen === 'M' ? `M${at}L${at}` : `L${at}`;
      pen = 'L';
    }
    shape(svg, 'path', {class: 'curve', d: path, ...attributes});
  };
  for (const curve of curves) {
    const {step, mean, least: lows, most: highs} = curve.points;
    let above = '', below = '';
    for (let i = 0; i < step.length; ++i) {
      // What is not finite stands at the top.
      if (mean[i] === null) {
        shape(svg, 'line', {class: 'odd', x1: x(step[i]), x2: x(step[i]), y1: top, y2: top + 6});
        continue;
      }
      if (highs.length === 0) continue;
      above += `${above ? 'L' : 'M'}${x(step[i]).toFixed(1)} ${y(highs[i]).toFixed(1)}`;
      below = `L${x(step[i]).toFixed(1)} ${y(lows[i]).toFixed(1)}` + below;
    }
    if (above) shape(svg, 'path', {d: `${above}${below}Z`, fill: color('band')});
    const isSmoothed = curve.smooth && all.length === 1;
    line(curve.points, {stroke: color(curve.color), ...(isSmoothed ? {opacity: 0.35} : {})});
    if (isSmoothed) line(smoothed(curve.points), {stroke: color(curve.color)});
    if (!curve.dots && step.length > 1) continue;
    for (let i = 0; i < step.length; ++i) {
      if (mean[i] === null) continue;
      shape(svg, 'circle', {cx: x(step[i]), cy: y(mean[i]), r: 3, fill: color(curve.color)});
    }
  }
  const cross = shape(svg, 'line', {class: 'cross', y1: top, y2: height - bottom});
  cross.style.display = 'none';
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const at = first + (event.clientX - box.left - left) / (width - left - right) * (last - first);
    let nearest = null;
    const lines = [];
    for (const curve of curves) {
      const {step, mean} = curve.raw;
      let best = -1;
      for (let i = 0; i < step.length; ++i) {
        if (best < 0 || Math.abs(step[i] - at) < Math.abs(step[best] - at)) best = i;
      }
      if (best < 0) continue;
      nearest ??= step[best];
      const where = step[best] === nearest ? '' : `  (step ${step[best]})`;
      lines.push(`${curve.name}  ${(format?.value ?? short)(mean[best])}${where}`);
    }
    if (nearest === null) return;
    cross.style.display = '';
    cross.setAttribute('x1', x(nearest));
    cross.setAttribute('x2', x(nearest));
    tip(event, [`step ${nearest}`, ...lines].join('\n'));
  });
  svg.addEventListener('pointerleave', (event) => {
    cross.style.display = 'none';
    tip(event, null);
  });
  if (curves.length === 1) return;
  const legend = element(content, 'div', {class: 'legend'});
  for (const curve of curves) {
    const entry = element(legend, 'span');
    element(entry, 'i', {class: 'key'}).style.background = color(curve.color);
    entry.append(curve.name);
  }
}

// Shares of a whole, one behind the other: [{name, color, size}].
function drawStack(content, parts, format) {
  if (parts.filter((part) => part.size > 0).length < 2) return;
  const stack = element(content, 'div', {class: 'stack'});
  const sum = parts.reduce((before, part) => before + part.size, 0);
  for (const part of parts) {
    if (part.size <= 0) continue;
    const bar = element(stack, 'i');
    bar.style.flexGrow = String(part.size / sum);
    bar.style.background = color(part.color);
    bar.addEventListener('pointermove', (event) => tip(event,
        `${part.name}  ${format(part.size)}, ${(100 * part.size / sum).toFixed(1)} %`));
    bar.addEventListener('pointerleave', (event) => tip(event, null));
  }
}
)js";
}

}  // namespace brigade::monitor
