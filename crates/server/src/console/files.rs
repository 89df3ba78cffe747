//! The files of the console. Written by `npm run build` in `ui/`; do not edit.

use super::File;

/// Every file, by its path below `/ui/`.
pub(super) const FILES: &[File] = &[
    File {
        path: "files/icon-CsbjEDeU.svg",
        media_type: "image/svg+xml",
        etag: "\"97b9cfffc3f8e951\"",
        bytes: include_bytes!("dist/files/icon-CsbjEDeU.svg"),
        gzip: include_bytes!("dist/files/icon-CsbjEDeU.svg.gz"),
    },
    File {
        path: "files/index-B9U6tlgH.css",
        media_type: "text/css; charset=utf-8",
        etag: "\"a11546babd348373\"",
        bytes: include_bytes!("dist/files/index-B9U6tlgH.css"),
        gzip: include_bytes!("dist/files/index-B9U6tlgH.css.gz"),
    },
    File {
        path: "files/index-RlSfyWRA.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"f71633bcb8e4e5d4\"",
        bytes: include_bytes!("dist/files/index-RlSfyWRA.js"),
        gzip: include_bytes!("dist/files/index-RlSfyWRA.js.gz"),
    },
    File {
        path: "files/worker-DPjrS2hQ.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"34f92f12feff730f\"",
        bytes: include_bytes!("dist/files/worker-DPjrS2hQ.js"),
        gzip: include_bytes!("dist/files/worker-DPjrS2hQ.js.gz"),
    },
    File {
        path: "index.html",
        media_type: "text/html; charset=utf-8",
        etag: "\"6758bb4f1d397a6f\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
