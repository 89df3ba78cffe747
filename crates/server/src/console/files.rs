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
        path: "files/index-CK3SxX5L.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"2028128c32fad6bc\"",
        bytes: include_bytes!("dist/files/index-CK3SxX5L.js"),
        gzip: include_bytes!("dist/files/index-CK3SxX5L.js.gz"),
    },
    File {
        path: "files/index-D1HRgtll.css",
        media_type: "text/css; charset=utf-8",
        etag: "\"18751e55ebc84f90\"",
        bytes: include_bytes!("dist/files/index-D1HRgtll.css"),
        gzip: include_bytes!("dist/files/index-D1HRgtll.css.gz"),
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
        etag: "\"0dfa3cd672740262\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
