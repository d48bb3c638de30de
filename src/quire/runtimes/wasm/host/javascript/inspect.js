// Values as text, without running a getter, a trap or a method of theirs. What is used here was captured before any
// cell ran, and nothing is written to an object whose prototype a cell can reach.
const world = globalThis;
const evaluate = eval; // under another name: the global one
const bind = Function.prototype.bind.bind(Function.prototype.call);
const uncurried = (method) => bind(method);
const getter = (of, name) => uncurried(Reflect.getOwnPropertyDescriptor(of, name).get);
const { apply, ownKeys, getOwnPropertyDescriptor, getPrototypeOf, defineProperty, deleteProperty } = Reflect;
const { hasOwn, create, freeze } = Object;
const { isArray } = Array;
const { isFinite: isFiniteNumber } = Number;
const objectPrototype = Object.prototype, arrayPrototype = Array.prototype;
const jsonText = JSON.stringify, jsonValue = JSON.parse;
const textOf = String, numberOf = Number, isSame = Object.is;
const slice = uncurried(String.prototype.slice), indexOf = uncurried(String.prototype.indexOf);
const repeated = uncurried(String.prototype.repeat), codeAt = uncurried(String.prototype.charCodeAt);
const sourceOf = uncurried(Function.prototype.toString), symbolText = uncurried(Symbol.prototype.toString);
const bigText = uncurried(BigInt.prototype.toString), isoDate = uncurried(Date.prototype.toISOString);
const time = uncurried(Date.prototype.getTime), patternText = uncurried(RegExp.prototype.toString);
const sizeOfMap = getter(Map.prototype, "size"), sizeOfSet = getter(Set.prototype, "size");
const eachOfMap = uncurried(Map.prototype.forEach), eachOfSet = uncurried(Set.prototype.forEach);
const TypedArray = getPrototypeOf(Uint8Array);
const typedLength = getter(TypedArray.prototype, "length"), typedName = getter(TypedArray.prototype, Symbol.toStringTag);
const bufferLength = getter(ArrayBuffer.prototype, "byteLength"), viewLength = getter(DataView.prototype, "byteLength");
const Bytes = Uint8Array, Failure = Error, WrongType = TypeError, WrongText = SyntaxError;

const [WRITE, DISPLAY, CLASS, TARGET, STATE, RESULT, FILES, CALL, ENCODE, DECODE, RANDOM] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const classes = { __proto__: null };
for (const [name, value] of [
  ["Object", {}], ["Array", []], ["Error", new Error()], ["Number", Object(1)], ["String", Object("")],
  ["Boolean", Object(true)], ["Symbol", Object(Symbol())], ["BigInt", Object(1n)], ["Date", new Date(0)],
  ["RegExp", /x/], ["Map", new Map()], ["Set", new Set()], ["WeakMap", new WeakMap()], ["WeakSet", new WeakSet()],
  ["WeakRef", new WeakRef({})], ["ArrayBuffer", new ArrayBuffer(0)], ["DataView", new DataView(new ArrayBuffer(0))],
  ["Promise", new Promise(() => {})], ["Proxy", new Proxy({}, {})], ["Generator", (function* () {})()],
  ["AsyncGenerator", (async function* () {})()], ["Arguments", (function () { return arguments; })()],
  ...[Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, BigInt64Array,
    BigUint64Array, Float32Array, Float64Array].map((each) => ["TypedArray", new each()]),
]) classes[host(CLASS, value)] = name;
if (typeof Float16Array === "function") classes[host(CLASS, new Float16Array())] = "TypedArray";

const LONGEST = 20000, STRING = 10000, ITEMS = 100, DEEPEST = 4, WIDE = 72, NODES = 5000;
const kinds = new WeakMap(), kindKnown = uncurried(WeakMap.prototype.get), keepKind = uncurried(WeakMap.prototype.set);
function kindOf(value) {
  let kind = kindKnown(kinds, value);
  if (kind === undefined) {
    kind = classes[host(CLASS, value)] ?? "Object";
    keepKind(kinds, value, kind);
  }
  return kind;
}

// A property's value where it is a plain one, of the object or of what it inherits from.
function plainly(value, name) {
  for (let each = value, steps = 0; each !== null && steps < 50; steps++) {
    if ((typeof each !== "object" && typeof each !== "function") || kindOf(each) === "Proxy") return undefined;
    const found = getOwnPropertyDescriptor(each, name);
    if (found) return hasOwn(found, "value") ? found.value : undefined;
    each = getPrototypeOf(each);
  }
  return undefined;
}

function constructorName(value) {
  const maker = plainly(value, "constructor");
  const name = typeof maker === "function" ? plainly(maker, "name") : undefined;
  return typeof name === "string" ? slice(name, 0, 100) : "";
}

function quoted(text, longest = STRING) {
  const cut = text.length > longest;
  const said = jsonText(cut ? slice(text, 0, longest) : text);
  const inner = slice(said, 1, said.length - 1);
  let out = "'";
  if (indexOf(inner, "'") >= 0) out = said;
  else {
    for (let at = 0; at < inner.length; at++) {
      if (inner[at] === "\\" && inner[at + 1] !== '"') out += inner[at++];
      else if (inner[at] === "\\") at++;
      out += inner[at];
    }
    out += "'";
  }
  return cut ? out + `... ${text.length - longest} more characters` : out;
}

const identifier = (name) => {
  if (name === "" || name.length > 100) return false;
  for (let at = 0; at < name.length; at++) {
    const code = codeAt(name, at);
    const letter = (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code === 95 || code === 36;
    if (!letter && !(at && code >= 48 && code <= 57)) return false;
  }
  return true;
};
const keyText = (key) =>
  typeof key === "symbol" ? `[${symbolText(key)}]` : identifier(key) ? key : quoted(key, 100);

function inspected(value, deepest = DEEPEST) {
  const state = { __proto__: null, nodes: 0, length: 0, deepest, above: create(null), depth: 0 };
  const text = shownAs(value, state, 0);
  return text.length > LONGEST ? slice(text, 0, LONGEST) + "... (cut)" : text;
}

function shownAs(value, state, depth) {
  switch (typeof value) {
    case "string": return depth || state.quote ? quoted(value) : quoted(value, LONGEST);
    case "number": return isSame(value, -0) ? "-0" : `${value}`;
    case "bigint": return `${cutShort(bigText(value))}n`;
    case "symbol": return cutShort(symbolText(value));
    case "object": if (value === null) return "null"; break;
    case "function": break;
    default: return `${value}`;
  }
  if (++state.nodes > NODES || state.length > LONGEST) return "...";
  for (let at = 0; at < depth; at++) if (state.above[at] === value) return "[Circular]";
  state.above[depth] = value;
  const text = objectText(value, state, depth);
  state.length += text.length > 200 ? 200 : text.length;
  return text;
}

const cutShort = (text) => (text.length > STRING ? slice(text, 0, STRING) + "..." : text);

function functionText(value) {
  const source = sourceOf(value), name = plainly(value, "name");
  const called = typeof name === "string" && name !== "" ? slice(name, 0, 100) : "";
  if (slice(source, 0, 5) === "class") {
    const above = getPrototypeOf(value), parent = typeof above === "function" ? plainly(above, "name") : "";
    return `[class ${called || "(anonymous)"}${parent ? ` extends ${slice(textOf(parent), 0, 100)}` : ""}]`;
  }
  const star = indexOf(slice(source, 0, 20), "function*") >= 0 || indexOf(slice(source, 0, 20), "function *") >= 0;
  const kind = (slice(source, 0, 5) === "async" ? "Async" : "") + (star ? "Generator" : "") + "Function";
  return called ? `[${kind}: ${called}]` : `[${kind} (anonymous)]`;
}

function objectText(value, state, depth) {
  const kind = kindOf(value);
  if (kind === "Proxy") {
    const target = host(TARGET, value);
    if (target === undefined || target === null) return "<revoked Proxy>";
    return `Proxy(${depth >= state.deepest ? "..." : shownAs(target, state, depth + 1)})`;
  }
  const own = constructorName(value), parts = { __proto__: null, count: 0 };
  let prefix = "", open = "{", close = "}";
  if (typeof value === "function") prefix = functionText(value);
  else if (isArray(value)) { open = "["; close = "]"; prefix = own === "Array" ? "" : `${own || "Array"}(${value.length})`; }
  else switch (kind) {
    case "TypedArray": prefix = `${typedName(value)}(${typedLength(value)})`; open = "["; close = "]"; break;
    case "Map": prefix = `${own || "Map"}(${sizeOfMap(value)})`; break;
    case "Set": prefix = `${own || "Set"}(${sizeOfSet(value)})`; break;
    case "Date": prefix = isNaNTime(value) ? "Invalid Date" : isoDate(value); break;
    case "RegExp": prefix = regexText(value); break;
    case "Error": prefix = errorText(value, state, depth); break;
    case "Promise": prefix = "Promise"; break;
    case "ArrayBuffer": prefix = "ArrayBuffer"; add(parts, `byteLength: ${bufferLength(value)}`); break;
    case "DataView": prefix = "DataView"; add(parts, `byteLength: ${viewLength(value)}`); break;
    case "Number": case "String": case "Boolean": case "Symbol": case "BigInt": prefix = `[${kind} object]`; break;
    case "Generator": case "AsyncGenerator": prefix = `Object [${kind}] {}`; break;
    case "WeakMap": case "WeakSet": case "WeakRef": prefix = `${kind} { <items unknown> }`; break;
    case "Arguments": prefix = "[Arguments]"; open = "["; close = "]"; break;
    default: prefix = own === "Object" ? "" : own || "[Object: null prototype]";
  }
  if (depth >= state.deepest && kind !== "Error" && kind !== "Date" && kind !== "RegExp" && typeof value !== "function") {
    return isArray(value) ? "[Array]" : `[${own || "Object"}]`;
  }
  fill(value, kind, parts, state, depth);
  const alone = typeof value === "function" || ALONE[kind];
  if (!parts.count) return alone ? prefix : `${prefix}${prefix ? " " : ""}${open}${close}`;
  return `${prefix}${prefix ? " " : ""}${laidOut(parts, open, close, depth)}`;
}

const ALONE = { __proto__: null };
for (const each of ["Date", "RegExp", "Error", "Number", "String", "Boolean", "Symbol", "BigInt", "Generator",
  "AsyncGenerator", "WeakMap", "WeakSet", "WeakRef"]) ALONE[each] = true;

const add = (parts, text) => { parts[parts.count++] = text; };
const isNaNTime = (value) => { const at = time(value); return at !== at; };
const regexText = (value) => { // its own source and flags could be getters of a cell's
  const source = sourceAndFlags(value);
  return source === undefined ? "[RegExp]" : cutShort(source);
};
const rawSource = getter(RegExp.prototype, "source");
const flagGetters = ["hasIndices", "global", "ignoreCase", "multiline", "dotAll", "unicode", "unicodeSets", "sticky"]
  .map((name, at) => [getter(RegExp.prototype, name), "dgimsuvy"[at]]);
function flagsOf(value) {
  let flags = "";
  for (let at = 0; at < 8; at++) if (flagGetters[at][0](value)) flags += flagGetters[at][1];
  return flags;
}
const sourceAndFlags = (value) => `/${rawSource(value)}/${flagsOf(value)}`;

function laidOut(parts, open, close, depth) {
  let line = "";
  const long = parts.count > 30 && open === "{";
  for (let at = 0; at < parts.count; at++) {
    line += (at ? ", " : "") + parts[at];
    if (line.length > WIDE * 4) break;
  }
  const pad = open === "[" ? "" : " ";
  if (open === "[") line = ` ${line} `; else line = pad + line + pad;
  if (!long && line.length + depth * 2 <= WIDE + 4 && indexOf(line, "\n") < 0) return open + line + close;
  const indent = repeated(" ", depth * 2 + 2);
  let out = open;
  let row = "";
  for (let at = 0; at < parts.count; at++) {
    const text = parts[at] + (at + 1 < parts.count ? "," : "");
    if (open === "[" && parts.count > 6 && text.length <= 16 && row.length + text.length < WIDE) {
      row += (row ? " " : "") + text;
      continue;
    }
    if (row) { out += `\n${indent}${row}`; row = ""; }
    if (open === "[" && parts.count > 6 && text.length <= 16) row = text;
    else out += `\n${indent}${text}`;
  }
  if (row) out += `\n${indent}${row}`;
  return `${out}\n${repeated(" ", depth * 2)}${close}`;
}

function fill(value, kind, parts, state, depth) {
  let listed = 0;
  if (kind === "TypedArray") {
    listed = typedLength(value);
    for (let at = 0; at < listed && at < ITEMS; at++) add(parts, shownAs(value[at], state, depth + 1));
  } else if (isArray(value) || kind === "Arguments") {
    listed = value.length;
    let holes = 0;
    for (let at = 0; at < listed && at < ITEMS; at++) {
      const found = getOwnPropertyDescriptor(value, at);
      if (!found) { holes++; continue; }
      if (holes) { add(parts, `<${holes} empty item${holes > 1 ? "s" : ""}>`); holes = 0; }
      add(parts, propertyText(found, state, depth));
    }
    if (holes) add(parts, `<${holes} empty item${holes > 1 ? "s" : ""}>`);
  } else if (kind === "Map" || kind === "Set") {
    let at = 0;
    if (kind === "Map") eachOfMap(value, (item, key) => {
      if (at++ < ITEMS) add(parts, `${shownAs(key, state, depth + 1)} => ${shownAs(item, state, depth + 1)}`);
    });
    else eachOfSet(value, (item) => { if (at++ < ITEMS) add(parts, shownAs(item, state, depth + 1)); });
    listed = at;
  } else if (kind === "Promise") {
    const settled = host(STATE, value);
    add(parts, settled === 0 ? "<pending>" : `${settled === 2 ? "<rejected> " : ""}${shownAs(host(RESULT, value), state, depth + 1)}`);
  }
  if (listed > ITEMS) add(parts, `... ${listed - ITEMS} more item${listed - ITEMS > 1 ? "s" : ""}`);
  if (kind === "TypedArray" || (isArray(value) && listed > 100000)) return;
  named(value, kind, parts, state, depth);
}

function named(value, kind, parts, state, depth) {
  const keys = ownKeys(value), indexed = isArray(value) || kind === "Arguments" || kind === "String";
  let shown = 0, more = 0;
  for (let at = 0; at < keys.length; at++) {
    const key = keys[at];
    if (indexed && typeof key === "string" && codeAt(key, 0) >= 48 && codeAt(key, 0) <= 57) continue;
    const found = getOwnPropertyDescriptor(value, key);
    if (!found || !found.enumerable) continue;
    if (kind === "Error" && (key === "message" || key === "stack" || key === "name")) continue;
    if (++shown > ITEMS || state.length > LONGEST) { more++; continue; }
    add(parts, `${keyText(key)}: ${propertyText(found, state, depth)}`);
  }
  if (more) add(parts, `... ${more} more`);
}

function propertyText(found, state, depth) {
  if (hasOwn(found, "value")) return shownAs(found.value, state, depth + 1);
  return found.get ? (found.set ? "[Getter/Setter]" : "[Getter]") : "[Setter]";
}

function errorName(error) {
  const name = plainly(error, "name"), own = constructorName(error);
  if (typeof name === "string" && name !== "" && (name !== "Error" || !own)) return slice(name, 0, 200);
  return own && own !== "Object" ? own : "Error";
}

const inheritedStack = getOwnPropertyDescriptor(Error.prototype, "stack")?.get;
const engineStack = inheritedStack ? uncurried(inheritedStack) : () => undefined;
function stackOf(error) {
  const own = plainly(error, "stack");
  if (typeof own === "string") return cutShort(own);
  try { return plainText(engineStack(error)); } catch { return ""; }
}
const plainText = (value) => (typeof value === "string" ? cutShort(value) : "");

function errorText(error, state, depth) {
  const message = plainText(plainly(error, "message")), stack = depth ? "" : stackOf(error);
  const head = errorName(error) + (message ? `: ${message}` : "");
  return depth ? `[${head}]` : stack ? `${head}\n${ours(stack)}` : head;
}

// A stack without the lines of this prelude.
function ours(stack) {
  let out = "", start = 0;
  while (start < stack.length) {
    let end = indexOf(stack, "\n", start);
    if (end < 0) end = stack.length;
    const line = slice(stack, start, end);
    if (indexOf(line, "quire:prelude") < 0 && indexOf(line, "(native)") < 0 && line !== "") out += (out ? "\n" : "") + line;
    start = end + 1;
  }
  return out;
}
