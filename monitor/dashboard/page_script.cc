#include "brigade/monitor/dashboard/page.h"

namespace brigade::monitor {

absl::string_view PageScript() {
  return R"js(
const T = 'Train/Samples/', M = 'Train/Memory/';

// Charts of known tags, in this order; what else comes has a chart each behind them.
const CHARTS = [
  {title: 'Loss', unit: () => `${data.loss} per ${data.unit}`, curves: [
    {tag: T + 'train_loss', name: 'training', color: 'blue'},
    {tag: T + 'held_out_loss', name: 'held out', color: 'amber', dots: true}]},
  {title: 'Throughput', unit: () => data.unit + 's per second, and smoothed', curves: [
    {tag: T + 'tokens_per_second', name: 'rate', color: 'teal', smooth: true}]},
  {title: 'Gradient norm', unit: 'before clipping; red: not finite', curves: [
    {tag: T + 'grad_norm', name: 'norm', color: 'violet'}]},
  {title: 'Learning rate', unit: '', curves: [
    {tag: T + 'lr', name: 'rate', color: 'blue'}]},
  // Of types that need none it is 1.
  {title: 'Loss scale', unit: '', hides: (curves) => curves[0].points.mean.every((v) => v === 1),
   curves: [{tag: T + 'loss_scale', name: 'scale', color: 'amber'}]},
  {title: 'Parts of a step', unit: 'milliseconds, smoothed', curves: [
    {tag: T + 'elapsed_time_ms_forward', name: 'forward', color: 'blue', smooth: true},
    {tag: T + 'elapsed_time_ms_backward_inner', name: 'backward', color: 'violet', smooth: true},
    {tag: T + 'elapsed_time_ms_backward_allreduce', name: 'exposed communication', color: 'red',
     smooth: true},
    {tag: T + 'elapsed_time_ms_step', name: 'optimizer', color: 'amber', smooth: true}]},
];
const KNOWN = new Set(CHARTS.flatMap((chart) => chart.curves.map((curve) => curve.tag)));
// The second is the sum of two that are shown.
const HIDDEN = new Set([T + 'skipped', T + 'elapsed_time_ms_backward']);

const PURPOSES = [
  ['parameters', 'blue'], ['gradients', 'violet'], ['optimizer_state', 'teal'],
  ['activations', 'amber'], ['communication', 'red'], ['scratch', 'grey']];
const SPLIT = {
  gemm: ['matrix products', 'blue'], other_compute: ['other computing', 'teal'],
  optimizer: ['optimizer', 'amber'], exposed_communication: ['exposed communication', 'red'],
  idle: ['idle', 'grey']};
const PASSES = {F: ['forward', 'blue'], B: ['backward', 'violet'], W: ['weight gradients', 'teal']};
const OTHERS = {exchange: ['exchange', 'red'], update: ['optimizer', 'amber']};

let data = null, lost = 0;
const words = (name) => name.replaceAll('_', ' ');
// Undefined: it is not there; null: it is not finite.
const latest = (tag) => data.series[tag]?.latest;

function drawHeader() {
  const {step, steps, from, started, now, updated} = data;
  $('title').textContent = data.title;
  document.title = steps ? `${Math.floor(100 * step / steps)} % · Brigade` : 'Brigade';
  const share = steps ? Math.min(1, step / steps) : 0;
  $('bar').style.width = `${100 * share}%`;
  $('track').setAttribute('aria-valuenow', String(Math.round(100 * share)));
  const made = step - from, took = Math.max(updated - started, 0);
  const left = made > 0 && steps ? took / made * (steps - step) : null;
  $('progress').textContent = `step ${step}${steps ? ` of ${steps}` : ''}` +
      ` · ${seconds(took)} elapsed${left === null ? '' : ` · ${seconds(left)} left`}`;
  const silent = now - updated;
  // Longer than steps take.
  const usual = Math.max(10, made > 0 ? 4 * took / made : 0);
  const state = $('state');
  if (lost > 0) {
    state.className = 'state gone';
    state.textContent = 'no answer: the training has ended, or its machine cannot be reached';
  } else if (steps && step >= steps) {
    state.className = 'state';
    state.textContent = 'all steps made';
  } else if (silent > usual) {
    state.className = 'state waits';
    state.textContent = `no step for ${seconds(silent)}`;
  } else {
    state.className = 'state runs';
    state.textContent = 'training';
  }
}

function drawTiles() {
  const memory = latest(M + 'device_bytes');
  const tiles = [
    ['loss', short(latest(T + 'train_loss'))],
    ['held out', short(latest(T + 'held_out_loss'))],
    ['tokens per second', short(latest(T + 'tokens_per_second'))],
    ['gradient norm', short(latest(T + 'grad_norm'))],
    ['learning rate', short(latest(T + 'lr'))],
    ['loss scale', short(latest(T + 'loss_scale'))],
    ['memory of rank 0', memory === undefined ? '–' : bytes(memory)],
    ['samples', short(data.samples)],
  ];
  $('tiles').replaceChildren();
  for (const [name, value] of tiles) {
    const tile = element($('tiles'), 'div', {class: 'tile'});
    element(tile, 'span', {}, name);
    element(tile, 'b', {}, value);
  }
}

function panelOf(id, title, unit) {
  const there = document.getElementById(id);
  if (there !== null) return there.querySelector('.content');
  const panel = element($('charts'), 'figure', {class: 'panel', id});
  const caption = element(panel, 'figcaption', {}, title + ' ');
  element(caption, 'small', {}, unit);
  return element(panel, 'div', {class: 'content'});
}

function drawCharts() {
  const others = Object.keys(data.series)
      .filter((tag) => !KNOWN.has(tag) && !HIDDEN.has(tag) && !tag.startsWith(M))
      .map((tag) => {
        const parts = tag.split('/');
        const name = words(parts.pop());
        return {title: name, unit: parts.join(', '), curves: [{tag, name, color: 'teal'}]};
      });
  for (const chart of [...CHARTS, ...others]) {
    const curves = chart.curves.filter((curve) => data.series[curve.tag] !== undefined)
        .map((curve) => ({...curve, points: data.series[curve.tag].points}));
    if (curves.length === 0 || (chart.hides && chart.hides(curves))) continue;
    const unit = typeof chart.unit === 'function' ? chart.unit() : chart.unit;
    drawCurves(panelOf('chart ' + chart.curves[0].tag, chart.title, unit), curves);
  }
}

function drawMemory() {
  const content = $('memory').querySelector('.content');
  content.replaceChildren();
  let table = null;
  for (const tier of ['device', 'host']) {
    const parts = PURPOSES.map(([purpose, tone]) => ({
      name: words(purpose), color: tone, size: latest(`${M}${tier}_${purpose}_bytes`) ?? 0,
      peak: latest(`${M}${tier}_${purpose}_peak_bytes`) ?? 0}));
    if (!parts.some((part) => part.size > 0 || part.peak > 0)) continue;
    drawStack(content, parts, bytes);
    table = element(content, 'table');
    const head = element(table, 'tr');
    for (const title of [tier, 'now', 'peak']) element(head, 'th', {}, title);
    const sum = {name: 'all', size: latest(`${M}${tier}_bytes`) ?? 0,
                 peak: latest(`${M}${tier}_peak_bytes`) ?? 0};
    for (const part of [...parts, sum]) {
      if (part.size <= 0 && part.peak <= 0) continue;
      const row = element(table, 'tr');
      const cell = element(row, 'td');
      if (part.color) element(cell, 'i', {class: 'key'}).style.background = color(part.color);
      cell.append(part.name);
      element(row, 'td', {}, bytes(part.size));
      element(row, 'td', {}, bytes(part.peak));
    }
  }
  if (table === null) element(content, 'p', {class: 'empty'}, 'no values yet');
}

function drawSplit() {
  const {split, step, seconds: whole} = data.timeline;
  const content = $('split').querySelector('.content');
  content.replaceChildren();
  if (split.length === 0) {
    element(content, 'p', {class: 'empty'}, 'no step has been measured yet');
    return;
  }
  $('split').querySelector('small').textContent =
      `step ${step} on rank 0: ${seconds(whole)}`;
  const parts = split.map(([name, size]) => ({
    name: SPLIT[name]?.[0] ?? words(name), color: SPLIT[name]?.[1] ?? 'grey', size}));
  drawStack(content, parts, seconds);
  const table = element(content, 'table');
  const sum = parts.reduce((before, part) => before + part.size, 0);
  for (const part of parts) {
    const row = element(table, 'tr');
    const cell = element(row, 'td');
    element(cell, 'i', {class: 'key'}).style.background = color(part.color);
    cell.append(part.name);
    element(row, 'td', {}, seconds(part.size));
    element(row, 'td', {}, `${(100 * part.size / sum).toFixed(1)} %`);
  }
}

function drawPipeline() {
  const {lanes, step, seconds: whole} = data.timeline;
  const content = $('pipeline').querySelector('.content');
  content.replaceChildren();
  if (lanes.length === 0) {
    element(content, 'p', {class: 'empty'}, 'no step has been measured yet');
    return;
  }
  $('pipeline').querySelector('small').textContent = `step ${step}, ${seconds(whole)}`;
  let end = whole;
  for (const lane of lanes) {
    for (const span of [...lane.passes, ...lane.others]) end = Math.max(end, span[2]);
  }
  const width = Math.max(content.clientWidth, 300), left = 62, right = 74, row = 34, top = 4;
  const height = top + row * lanes.length + 26;
  const x = (at) => left + at / end * (width - left - right);
  const svg = shape(content, 'svg', {height, viewBox: `0 0 ${width} ${height}`, role: 'img'});
  svg.setAttribute('aria-label', `what each rank did in step ${step}`);
  const times = ticks(0, 1e3 * end, Math.floor(width / 120));
  for (const ms of times.found) {
    const at = x(ms / 1e3);
    shape(svg, 'line', {class: 'rule', x1: at, x2: at, y1: top, y2: height - 22});
    shape(svg, 'text', {x: at, y: height - 7, 'text-anchor': 'middle'}, `${times.text(ms)} ms`);
  }
  const box = (span, kind, y, tall) => {
    const wide = Math.max(x(span[2]) - x(span[1]), 0.6);
    const made = shape(svg, 'rect', {x: x(span[1]), y, width: wide, height: tall, rx: 1.5,
                                     fill: color(kind[1])});
    made.addEventListener('pointermove', (event) => tip(event,
        `${span[0]}: ${kind[0]}\n${seconds(span[2] - span[1])} from ${seconds(span[1])}`));
    made.addEventListener('pointerleave', (event) => tip(event, null));
    return wide;
  };
  lanes.forEach((lane, i) => {
    const y = top + i * row;
    shape(svg, 'text', {class: 'lane', x: 0, y: y + 15}, lane.name);
    let busy = 0;
    for (const span of lane.passes) {
      busy += span[2] - span[1];
      const wide = box(span, PASSES[span[0][0]] ?? ['pass', 'grey'], y, 20);
      if (wide < 7 * span[0].length + 4) continue;
      shape(svg, 'text', {class: 'on', x: x(span[1]) + wide / 2, y: y + 14,
                          'text-anchor': 'middle'}, span[0]);
    }
    for (const span of lane.others) box(span, OTHERS[span[0]] ?? ['other', 'grey'], y + 22, 5);
    shape(svg, 'text', {x: width, y: y + 15, 'text-anchor': 'end'},
          `passes ${(100 * busy / end).toFixed(0)} %`);
  });
  const legend = element(content, 'div', {class: 'legend'});
  const used = new Set(lanes.flatMap((lane) => lane.passes.map((span) => span[0][0])));
  for (const [name, tone] of [...Object.keys(PASSES).filter((key) => used.has(key))
                                  .map((key) => PASSES[key]), ...Object.values(OTHERS)]) {
    const entry = element(legend, 'span');
    element(entry, 'i', {class: 'key'}).style.background = color(tone);
    entry.append(name);
  }
  if (lanes.some((lane) => lane.passes.length > 1)) {
    element(legend, 'span', {}, 'numbers are micro-batches, gaps are waiting');
  }
}

function draw() {
  if (data === null) return;
  for (const part of [drawHeader, drawTiles, drawCharts, drawMemory, drawSplit, drawPipeline]) {
    part();
  }
}

async function refresh() {
  try {
    const answer = await fetch('data.json', {cache: 'no-store', signal: AbortSignal.timeout(5000)});
    if (!answer.ok) throw new Error(answer.statusText);
    data = await answer.json();
    lost = 0;
    if ($('tip').hidden) draw(); else drawHeader();
  } catch (error) {
    ++lost;
    if (data !== null) {
      drawHeader();
    } else {
      $('state').className = 'state gone';
      $('state').textContent = 'no answer';
    }
  }
  document.body.dataset.step = data === null ? '' : data.step;
  setTimeout(refresh, document.hidden ? 5000 : 1000);
}

addEventListener('resize', draw);
refresh();
)js";
}

}  // namespace brigade::monitor
