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
        path: "files/index-BDteHCuz.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"f5ecea5a4a84dccb\"",
        bytes: include_bytes!("dist/files/index-BDteHCuz.js"),
        gzip: include_bytes!("dist/files/index-BDteHCuz.js.gz"),
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
        etag: "\"4d2c0c700a5cda2a\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
