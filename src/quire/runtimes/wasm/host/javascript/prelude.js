// What a cell finds besides the language, and what the host asks of the namespace.
const own = (name, value) => {
  defineProperty(world, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
};

// Timers: they fire while a cell waits.
let timers = { __proto__: null }, counted = 0, live = 0;
function timer(action, delay, every, given) {
  if (typeof action !== "function") throw new WrongType("A timer calls a function");
  const wait = numberOf(delay);
  const after = wait > 0 ? (wait > 2147483647 ? 1 : wait) : 0;
  const id = ++counted;
  timers[id] = { __proto__: null, id, due: now() + after, every: every ? (after < 1 ? 1 : after) : 0, action, given };
  live++;
  return id;
}
function cleared(id) {
  if (typeof id === "number" && timers[id]) { deleteProperty(timers, id); live--; }
}
function earliest() {
  let best;
  if (live) for (const id in timers) if (!best || timers[id].due < best.due) best = timers[id];
  return best;
}
// Milliseconds to the next timer, as text; nothing where there is none.
function due() {
  const next = earliest();
  if (!next) return "";
  const wait = next.due - now();
  return `${wait > 0 ? wait : 0}`;
}
function fire() {
  const next = earliest();
  if (!next || next.due > now()) return;
  if (next.every) next.due = now() + next.every;
  else cleared(next.id);
  apply(next.action, undefined, next.given);
}
function clear() { timers = create(null); live = 0; indent = ""; }

own("console", console);
if (world.performance) own("performance", world.performance);
own("display", display);
own("setTimeout", function setTimeout(action, delay, ...given) { return timer(action, delay, false, given); });
own("setInterval", function setInterval(action, delay, ...given) { return timer(action, delay, true, given); });
own("setImmediate", function setImmediate(action, ...given) { return timer(action, 0, false, given); });
own("clearTimeout", function clearTimeout(id) { cleared(id); });
own("clearInterval", function clearInterval(id) { cleared(id); });
own("clearImmediate", function clearImmediate(id) { cleared(id); });
const settledOne = Promise.resolve(), then = uncurried(Promise.prototype.then);
if (typeof queueMicrotask !== "function") own("queueMicrotask", function queueMicrotask(action) {
  if (typeof action !== "function") throw new WrongType("queueMicrotask calls a function");
  then(settledOne, () => { action(); });
});
own("TextEncoder", class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return answered(host(ENCODE, `${text}`)); }
});
own("TextDecoder", class TextDecoder {
  get encoding() { return "utf-8"; }
  decode(bytes) { return bytes === undefined ? "" : answered(host(DECODE, bytesOf(bytes, "What is decoded"))); }
});
// A static import of a cell (sources.py): a name that is not exported is an error, and every error says where the import
// stands, by a frame without a column, since the text that runs is not the cell's own.
own("quire:import", async function (load, from, names) {
  const at = ours(stackOf(new Failure())), end = indexOf(at, "\n"), frame = end < 0 ? at : slice(at, 0, end);
  let colon = frame.length - 1;
  while (colon > 0 && frame[colon] !== ":") colon--;
  const here = `${slice(frame, 0, colon)})`;
  try {
    const found = await load();
    for (let each = 0; each < names.length; each++) if (!hasOwn(found, names[each])) {
      const failure = new WrongText(`${from} does not export ${names[each]}; it exports ${listed(found)}`);
      own_(failure, "stack", "");
      throw failure;
    }
    return found;
  } catch (failure) {
    if (kindOf(failure) === "Error") {
      const stack = ours(stackOf(failure));
      if (indexOf(stack, here) < 0) try { own_(failure, "stack", stack ? `${stack}\n${here}` : here); } catch {}
    }
    throw failure;
  }
});
function listed(found) {
  const names = ownKeys(found);
  let text = "";
  for (let at = 0; at < names.length && at < 20; at++) if (typeof names[at] === "string") text += (text ? ", " : "") + names[at];
  return text ? text + (names.length > 21 ? ", …" : "") : "nothing";
}
function cloned(value, seen) {
  if (typeof value === "function" || typeof value === "symbol") throw new WrongType("Functions and symbols cannot be cloned");
  if (typeof value !== "object" || value === null) return value;
  if (hasClone(seen, value)) return cloneOf(seen, value);
  const kind = kindOf(value);
  const keep = (made) => { keepClone(seen, value, made); return made; };
  switch (kind) {
    case "Date": return keep(new Day(time(value)));
    case "TypedArray": return keep(copyOf(value));
    case "ArrayBuffer": return keep(cutBuffer(value, 0));
    case "RegExp": return keep(new Pattern(rawSource(value), flagsOf(value)));
    case "Map": { const made = keep(new Pairs()); eachOfMap(value, (item, key) => { setPair(made, cloned(key, seen), cloned(item, seen)); }); return made; }
    case "Set": { const made = keep(new Items()); eachOfSet(value, (item) => { addItem(made, cloned(item, seen)); }); return made; }
    case "Error": { const made = keep(new Failure(plainText(plainly(value, "message")))); own_(made, "name", errorName(value)); return made; }
    case "Array": case "Object": break;
    default: throw new WrongType(`${kind} cannot be cloned`);
  }
  const made = keep(kind === "Array" ? [] : {}), keys = ownKeys(value);
  if (kind === "Array") made.length = value.length;
  for (let at = 0; at < keys.length; at++) {
    const found = typeof keys[at] === "string" ? getOwnPropertyDescriptor(value, keys[at]) : undefined;
    if (!found || !found.enumerable) continue;
    own_(made, keys[at], cloned(value[keys[at]], seen), true);
  }
  return made;
}
const own_ = (object, name, value, enumerable = false) => {
  defineProperty(object, name, { __proto__: null, value, writable: true, configurable: true, enumerable });
};
const Day = Date, Pattern = RegExp, Pairs = Map, Items = Set;
const hasClone = uncurried(Map.prototype.has), cloneOf = uncurried(Map.prototype.get), keepClone = uncurried(Map.prototype.set);
const setPair = keepClone, addItem = uncurried(Set.prototype.add);
const copyOf = uncurried(TypedArray.prototype.slice), cutBuffer = uncurried(ArrayBuffer.prototype.slice);
own("structuredClone", function structuredClone(value) { return cloned(value, new Pairs()); });
const fillBytes = uncurried(TypedArray.prototype.set);
const bufferOf = getter(TypedArray.prototype, "buffer"), offsetOf = getter(TypedArray.prototype, "byteOffset");
const lengthOf = getter(TypedArray.prototype, "byteLength");
const hex = (bytes, from, to) => {
  let out = "";
  for (let at = from; at < to; at++) out += "0123456789abcdef"[bytes[at] >> 4] + "0123456789abcdef"[bytes[at] & 15];
  return out;
};
own("crypto", {
  getRandomValues(array) {
    const bytes = new Bytes(bufferOf(bytesOf(array, "What is filled")), offsetOf(array), lengthOf(array));
    fillBytes(bytes, answered(host(RANDOM, `${bytes.length}`)));
    return array;
  },
  randomUUID() {
    const bytes = answered(host(RANDOM, "16"));
    bytes[6] = (bytes[6] & 15) | 64;
    bytes[8] = (bytes[8] & 63) | 128;
    return `${hex(bytes, 0, 4)}-${hex(bytes, 4, 6)}-${hex(bytes, 6, 8)}-${hex(bytes, 8, 10)}-${hex(bytes, 10, 16)}`;
  },
});

const file = (does, path, data) => answered(host(FILES, does, wanted(path, "A path"), data));
own("files", freeze({
  __proto__: null,
  read: (path) => file("read", path),
  readBytes: (path) => file("readBytes", path),
  write: (path, data) => { file("write", path, typeof data === "string" ? data : bytesOf(data, "What is written, where it is no string,")); },
  list: (path = ".") => jsonValue(file("list", path)),
  remove: (path) => { file("remove", path); },
  mkdir: (path) => { file("mkdir", path); },
  exists: (path) => file("exists", path) === "true",
}));

// Capabilities.
const caps = {};
own("caps", caps);
let offered = { __proto__: null };
const locked = (value) => ({ __proto__: null, value, writable: false, configurable: true, enumerable: true });
function offer(said) {
  for (const name in offered) {
    deleteProperty(caps, name);
    const found = getOwnPropertyDescriptor(world, name);
    if (found && found.value === offered[name]) deleteProperty(world, name);
  }
  offered = create(null);
  const entries = jsonValue(said);
  for (let at = 0; at < entries.length; at++) {
    const made = capability(entries[at]);
    offered[entries[at].name] = made;
    defineProperty(caps, entries[at].name, locked(made));
    if (!hasOwn(world, entries[at].name) && !hasOwn(lexical, entries[at].name)) own(entries[at].name, made);
  }
}
function capability(entry) {
  const made = {};
  const asked = (does, method, given) => jsonValue(called(entry.own, does, method, given), undefined);
  for (let at = 0; at < entry.tools.length; at++) {
    const tool = entry.tools[at];
    const method = async (given, ...more) => asked("tool", tool.own, arguments_(tool, given, more));
    defineProperty(method, "name", locked(tool.names[0]));
    defineProperty(method, "description", locked(tool.about));
    for (let n = 0; n < tool.names.length; n++) defineProperty(made, tool.names[n], locked(method));
  }
  const also = (name, value) => { if (!hasOwn(made, name)) defineProperty(made, name, { ...locked(value), enumerable: false, __proto__: null }); };
  also("describe", () => entry.about);
  also("resources", async () => asked("resources", "", {}));
  also("read", async (uri) => asked("read", "", { uri }));
  also("prompts", async () => asked("prompts", "", {}));
  also("prompt", async (name, given = {}) => asked("prompt", wanted(name, "A prompt's name"), given));
  return made;
}
function arguments_(tool, given, more) {
  if (given === undefined) return {};
  if (typeof given === "object" && given !== null && !isArray(given) && !more.length) return given;
  const named = create(null); // by position, as the schema lists them
  for (let at = 0; at <= more.length; at++) {
    if (at >= tool.parameters.length) throw new WrongType(`${tool.names[0]} takes one object of arguments`);
    named[tool.parameters[at]] = at ? more[at - 1] : given;
  }
  return named;
}
function called(capability, does, method, given) {
  const said = jsonText(given);
  if (said === undefined) throw new WrongType("Arguments are an object that JSON can say");
  return answered(host(CALL, `{"do":${jsonText(does)},"capability":${jsonText(capability)},"method":${jsonText(method)},"given":${said}}`));
}

// What the host asks.
// JSON that says the value faithfully, or nothing.
function plain(value, depth, state) {
  if (++state.nodes > 100000 || depth > 45) return undefined;
  switch (typeof value) {
    case "string": return value.length > 1000000 ? undefined : jsonText(value);
    case "boolean": return value ? "true" : "false";
    case "number": return isFiniteNumber(value) && !isSame(value, -0) ? `${value}` : undefined;
    case "object": return value === null ? "null" : kindOf(value) === "Array" ? plainArray(value, depth, state) : plainObject(value, depth, state);
    default: return undefined;
  }
}
function plainArray(value, depth, state) {
  const count = value.length;
  if (count > 100000 || ownKeys(value).length !== count + 1) return undefined;
  let out = "[";
  for (let at = 0; at < count; at++) {
    const found = getOwnPropertyDescriptor(value, at);
    const said = found && hasOwn(found, "value") ? plain(found.value, depth + 1, state) : undefined;
    if (said === undefined || out.length > 1000000) return undefined;
    out += (at ? "," : "") + said;
  }
  return out + "]";
}
function plainObject(value, depth, state) {
  if (kindOf(value) !== "Object") return undefined;
  const above = getPrototypeOf(value);
  if (above !== objectPrototype && above !== null) return undefined;
  const keys = ownKeys(value);
  let out = "{";
  for (let at = 0; at < keys.length; at++) {
    const found = typeof keys[at] === "string" ? getOwnPropertyDescriptor(value, keys[at]) : undefined;
    const fits = found && found.enumerable && hasOwn(found, "value");
    const said = fits ? plain(found.value, depth + 1, state) : undefined;
    if (said === undefined || out.length > 1000000) return undefined;
    out += `${at ? "," : ""}${jsonText(keys[at])}:${said}`;
  }
  return out + "}";
}

function shown(value) {
  const said = plain(value, 0, { __proto__: null, nodes: 0 });
  return `{"text":${jsonText(inspected(value))}${said === undefined ? "" : `,"value":${said}`}}`;
}

function failed(error) {
  const object = typeof error === "object" && error !== null && kindOf(error) === "Error";
  if (!object) return `{"name":"Thrown","message":${jsonText(inspected(error))},"stack":"","causes":[]}`;
  let causes = "", each = error;
  for (let count = 0; count < 3; count++) {
    each = plainly(each, "cause");
    if (each === undefined) break;
    causes += (causes ? "," : "") + jsonText(slice(inspected(each), 0, 2000));
    if (typeof each !== "object" || each === null) break;
  }
  const errors = plainly(error, "errors");
  if (typeof errors === "object" && errors !== null && kindOf(errors) === "Array") causes += (causes ? "," : "") + jsonText(slice(inspected(errors), 0, 4000));
  return `{"name":${jsonText(errorName(error))},"message":${jsonText(plainText(plainly(error, "message")))},` +
    `"stack":${jsonText(ours(stackOf(error)))},"causes":[${causes}]}`;
}

const items = (count, one, many) => `${count} ${count === 1 ? one : many}`;
function described(value) {
  switch (typeof value) {
    case "string": return `string, ${items(value.length, "character", "characters")}`;
    case "object": if (value === null) return "null"; break;
    case "number": case "boolean": case "bigint": return `${typeof value}, ${slice(shownAs(value, { __proto__: null, above: create(null) }, 1), 0, 40)}`;
    default: return typeof value;
  }
  const kind = kindOf(value);
  if (kind === "Proxy") return "Proxy";
  const name = constructorName(value) || kind;
  if (isArray(value)) return `${name}, ${items(value.length, "item", "items")}`;
  switch (kind) {
    case "Map": return `${name}, ${items(sizeOfMap(value), "entry", "entries")}`;
    case "Set": return `${name}, ${items(sizeOfSet(value), "item", "items")}`;
    case "TypedArray": return `${typedName(value)}, ${items(typedLength(value), "item", "items")}`;
    case "ArrayBuffer": return `ArrayBuffer, ${items(bufferLength(value), "byte", "bytes")}`;
    case "Error": case "Date": case "RegExp": case "Promise": return name;
    default: return `${name}, ${items(ownKeys(value).length, "key", "keys")}`;
  }
}
function signature(value) {
  const source = sourceOf(value);
  let depth = 0;
  for (let at = 0; at < source.length && at < 300; at++) {
    const here = source[at];
    if (here === "(" || here === "[") depth++;
    else if (here === ")" || here === "]") depth--;
    else if (depth === 0 && (here === "{" || (here === "=" && source[at + 1] === ">"))) return slice(source, 0, at && source[at - 1] === " " ? at - 1 : at);
  }
  return slice(source, 0, 200);
}

function eachNamed(action) {
  const first = ownKeys(lexical), second = ownKeys(world);
  for (let at = 0; at < first.length; at++) if (typeof first[at] === "string") {
    let value;
    try { value = evaluate(first[at]); } catch { continue; } // declared by a cell that failed before it had a value
    action(first[at], value);
  }
  for (let at = 0; at < second.length; at++) {
    if (typeof second[at] !== "string") continue;
    const found = getOwnPropertyDescriptor(world, second[at]);
    if (found && found.enumerable && hasOwn(found, "value")) action(second[at], found.value);
  }
}
function inspect() {
  let variables = "", functions = "", count = 0;
  eachNamed((name, value) => {
    if (++count > 1000) return;
    const said = jsonText(slice(name, 0, 200));
    if (typeof value === "function" && kindOf(value) !== "Proxy") {
      functions += `${functions ? "," : ""}{"name":${said},"signature":${jsonText(signature(value))},"docstring":""}`;
    } else variables += `${variables ? "," : ""}${said}:${jsonText(described(value))}`;
  });
  return `{"variables":{${variables}},"functions":[${functions}]}`;
}
function read(name) {
  let value;
  if (hasOwn(lexical, name)) {
    try { value = evaluate(name); } catch { return '{"missing":true}'; }
  } else {
    const found = getOwnPropertyDescriptor(world, name);
    if (!found || !hasOwn(found, "value")) return '{"missing":true}';
    value = found.value;
  }
  const said = plain(value, 0, { __proto__: null, nodes: 0 });
  return said === undefined ? `{"text":${jsonText(inspected(value))}}` : `{"text":${jsonText(described(value))},"value":${said}}`;
}
// Have a name be free to be declared anew.
function forget(name) {
  return `${hasOwn(lexical, name) ? deleteProperty(lexical, name) : deleteProperty(world, name)}`;
}
// The value a cell's promise brought, out of the object it comes in.
const settled = (found) => (hasOwn(found, "value") ? found.value : undefined);
