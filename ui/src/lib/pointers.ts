// Where in a JSON text the members are, to show a problem at its location.

/** The line of the member that a JSON pointer names, or of the closest one around it. From one. */
export function lineOf(text: string, pointer: string): number {
  const offsets = scan(text);
  for (let path = pointer; ; path = path.slice(0, path.lastIndexOf("/"))) {
    const offset = offsets.get(path);
    if (offset !== undefined) return lineAt(text, offset);
    if (path === "") return 1;
  }
}

function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < offset; at = text.indexOf("\n", at + 1)) line++;
  return line;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** The offset of every value by its pointer. The text must be JSON; a rest that is not is ignored. */
function scan(text: string): Map<string, number> {
  const offsets = new Map<string, number>();
  const tokens = [...text.matchAll(TOKEN)];
  let at = 0;
  const value = (path: string): void => {
    const token = tokens[at++];
    if (!token) return;
    offsets.set(path, token.index);
    if (token[0] === "{") members(path);
    else if (token[0] === "[") items(path);
  };
  const members = (path: string): void => {
    while (at < tokens.length && tokens[at]![0] !== "}") {
      const name = nameOf(tokens[at++]![0]);
      if (tokens[at]?.[0] === ":") at++;
      value(`${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`);
      if (tokens[at]?.[0] === ",") at++;
    }
    at++;
  };
  const items = (path: string): void => {
    for (let index = 0; at < tokens.length && tokens[at]![0] !== "]"; index++) {
      value(`${path}/${index}`);
      if (tokens[at]?.[0] === ",") at++;
    }
    at++;
  };
  value("");
  return offsets;
}

function nameOf(token: string): string {
  try {
    return String(JSON.parse(token));
  } catch {
    return token;
  }
}
