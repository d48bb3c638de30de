// console, and what is displayed.
const write = (stream, text) => { host(WRITE, stream, text); };
let indent = "";
const counts = { __proto__: null }, clocks = { __proto__: null };
const now = Date.now;

function say(stream, text) {
  if (indent) {
    let out = "", start = 0;
    for (;;) {
      const end = indexOf(text, "\n", start);
      out += indent + slice(text, start, end < 0 ? text.length : end);
      if (end < 0) break;
      out += "\n";
      start = end + 1;
    }
    text = out;
  }
  write(stream, text + "\n");
}

const worded = (value) => (typeof value === "string" ? value : inspected(value));

function formatted(given) {
  let at = 0, out = "";
  if (given.length > 1 && typeof given[0] === "string" && indexOf(given[0], "%") >= 0) {
    const pattern = given[0];
    at = 1;
    for (let from = 0; from < pattern.length; from++) {
      const kind = pattern[from] === "%" ? pattern[from + 1] : "";
      if (kind === "%") { out += "%"; from++; continue; }
      const known = kind !== "" && kind !== undefined && indexOf("sdifjoOc", kind) >= 0;
      if (!known || at >= given.length) { out += pattern[from]; continue; }
      out += specified(kind, given[at++]);
      from++;
    }
  } else if (given.length) out = worded(given[at++]);
  for (; at < given.length; at++) out += " " + worded(given[at]);
  return out;
}

function specified(kind, value) {
  const simple = typeof value !== "object" && typeof value !== "function" && typeof value !== "symbol";
  switch (kind) {
    case "s": return typeof value === "string" ? value : inspected(value, 1);
    case "d": return typeof value === "bigint" ? `${value}n` : simple ? `${numberOf(value)}` : "NaN";
    case "i": return typeof value === "bigint" ? `${value}n` : simple ? `${whole(value)}` : "NaN";
    case "f": return simple && typeof value !== "bigint" ? `${fraction(value)}` : "NaN";
    case "j": return plain(value, 0, { __proto__: null, nodes: 0 }) ?? inspected(value);
    case "c": return "";
    default: return inspected(value);
  }
}
const whole = parseInt, fraction = parseFloat;

function tableText(data) {
  if (typeof data !== "object" || data === null) return worded(data);
  const rows = cells(data), columns = { __proto__: null }, names = { __proto__: null, count: 0 };
  let bare = false;
  for (let at = 0; at < rows.count; at++) {
    const row = rows[at].value;
    if (typeof row !== "object" || row === null) { bare = true; continue; }
    const found = cells(row);
    rows[at].cells = create(null);
    for (let n = 0; n < found.count; n++) {
      rows[at].cells[found[n].key] = inspected(found[n].value, 0);
      if (!columns[found[n].key] && names.count < 20) { columns[found[n].key] = true; names[names.count++] = found[n].key; }
    }
  }
  const lines = { __proto__: null, count: 0 };
  const head = { __proto__: null, count: 0 };
  head[head.count++] = "(index)";
  for (let n = 0; n < names.count; n++) head[head.count++] = names[n];
  if (bare) head[head.count++] = "Values";
  lines[lines.count++] = head;
  for (let at = 0; at < rows.count; at++) {
    const line = { __proto__: null, count: 0 };
    line[line.count++] = rows[at].key;
    for (let n = 0; n < names.count; n++) line[line.count++] = rows[at].cells?.[names[n]] ?? "";
    if (bare) line[line.count++] = rows[at].cells ? "" : inspected(rows[at].value, 0);
    lines[lines.count++] = line;
  }
  return drawn(lines, head.count);
}

function cells(data) {
  const found = { __proto__: null, count: 0 };
  const kind = kindOf(data);
  if (kind === "Proxy") return found;
  if (kind === "Map") {
    eachOfMap(data, (value, key) => { if (found.count < ITEMS) found[found.count++] = { __proto__: null, key: worded(key), value }; });
    return found;
  }
  const keys = ownKeys(data);
  for (let at = 0; at < keys.length && found.count < ITEMS; at++) {
    if (typeof keys[at] !== "string") continue;
    const property = getOwnPropertyDescriptor(data, keys[at]);
    if (!property || !property.enumerable || !hasOwn(property, "value")) continue;
    found[found.count++] = { __proto__: null, key: keys[at], value: property.value };
  }
  return found;
}

function drawn(lines, count) {
  const widths = { __proto__: null };
  for (let at = 0; at < lines.count; at++) for (let n = 0; n < count; n++) {
    lines[at][n] = slice(lines[at][n], 0, 60);
    if (!(widths[n] >= lines[at][n].length)) widths[n] = lines[at][n].length;
  }
  const rule = (left, middle, right) => {
    let out = left;
    for (let n = 0; n < count; n++) out += repeated("─", widths[n] + 2) + (n + 1 < count ? middle : right);
    return out;
  };
  let out = rule("┌", "┬", "┐");
  for (let at = 0; at < lines.count; at++) {
    out += "\n│";
    for (let n = 0; n < count; n++) out += ` ${lines[at][n]}${repeated(" ", widths[n] - lines[at][n].length)} │`;
    if (at === 0) out += "\n" + rule("├", "┼", "┤");
  }
  return out + "\n" + rule("└", "┴", "┘");
}

const label = (name) => (name === undefined ? "default" : typeof name === "string" ? name : inspected(name, 0));
const elapsed = (name) => `${name}: ${clocks[name] === undefined ? "no such timer" : `${now() - clocks[name]} ms`}`;

const console = {
  log(...given) { say("stdout", formatted(given)); },
  info(...given) { say("stdout", formatted(given)); },
  debug(...given) { say("stdout", formatted(given)); },
  warn(...given) { say("stderr", formatted(given)); },
  error(...given) { say("stderr", formatted(given)); },
  trace(...given) { say("stderr", `Trace: ${formatted(given)}\n${ours(stackOf(new Failure()))}`); },
  dir(value) { say("stdout", inspected(value, 8)); },
  table(data) { say("stdout", tableText(data)); },
  assert(holds, ...given) { if (!holds) say("stderr", `Assertion failed${given.length ? ": " + formatted(given) : ""}`); },
  group(...given) { if (given.length) say("stdout", formatted(given)); if (indent.length < 40) indent += "  "; },
  groupEnd() { indent = slice(indent, 2); },
  count(name) { name = label(name); counts[name] = (counts[name] ?? 0) + 1; say("stdout", `${name}: ${counts[name]}`); },
  countReset(name) { counts[label(name)] = 0; },
  time(name) { clocks[label(name)] = now(); },
  timeLog(name) { say("stdout", elapsed(label(name))); },
  timeEnd(name) { say("stdout", elapsed(label(name))); clocks[label(name)] = undefined; },
  clear() {},
};
console.groupCollapsed = console.group;

const wanted = (value, what) => {
  if (typeof value !== "string") throw new WrongType(`${what} is a string, not ${typeof value}`);
  return value;
};
const bytesOf = (value, what) => {
  if (typeof value === "object" && value !== null) {
    const kind = kindOf(value);
    if (kind === "TypedArray") return value;
    if (kind === "ArrayBuffer") return new Bytes(value);
  }
  throw new WrongType(`${what} is a Uint8Array or an ArrayBuffer`);
};
function display(value) { answered(host(DISPLAY, "text/plain", inspected(value))); }
display.html = (text) => { answered(host(DISPLAY, "text/html", wanted(text, "HTML"))); };
display.image = (bytes, mime = "image/png") => { answered(host(DISPLAY, wanted(mime, "The type"), bytesOf(bytes, "An image"))); };

// What the host said: a text, bytes, nothing; or an error, which is thrown.
function answered(found) {
  if (typeof found !== "string") return found;
  if (found[0] === "=") return slice(found, 1);
  const said = jsonValue(slice(found, 1));
  const error = new Failure(said.message);
  defineProperty(error, "name", { __proto__: null, value: said.name, writable: true, configurable: true, enumerable: false });
  throw error;
}
