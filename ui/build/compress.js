// The last step of a build: compresses each file and lists them for the server crate, which embeds
// them. The same sources give the same bytes on every machine: the compressor is written in
// JavaScript, and nothing depends on the time or on the order of a directory.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "fflate";

const folder = fileURLToPath(new URL("../../crates/server/src/console/", import.meta.url));
const dist = join(folder, "dist");

const TYPES = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

/** All files below a folder, as paths relative to it, in order. */
function filesIn(path) {
  const entries = readdirSync(path, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((entry) => relative(path, join(entry.parentPath, entry.name))).sort();
}

const rows = filesIn(dist).map((path) => {
  const type = TYPES[path.split(".").pop()];
  if (type === undefined) throw new Error(`${path} has a type that the server does not know`);
  const bytes = readFileSync(join(dist, path));
  writeFileSync(join(dist, `${path}.gz`), gzipSync(bytes, { level: 9, mtime: 0 }));
  const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
  return [
    `    File {`,
    `        path: "${path}",`,
    `        media_type: "${type}",`,
    `        etag: "\\"${digest}\\"",`,
    `        bytes: include_bytes!("dist/${path}"),`,
    `        gzip: include_bytes!("dist/${path}.gz"),`,
    `    },`,
  ].join("\n");
});

writeFileSync(
  join(folder, "files.rs"),
  `//! The files of the console. Written by \`npm run build\` in \`ui/\`; do not edit.

use super::File;

/// Every file, by its path below \`/ui/\`.
pub(super) const FILES: &[File] = &[
${rows.join("\n")}
];
`,
);
