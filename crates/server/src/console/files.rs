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
        path: "files/index-hgBvGbw9.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"2f2af2e2644fecfe\"",
        bytes: include_bytes!("dist/files/index-hgBvGbw9.js"),
        gzip: include_bytes!("dist/files/index-hgBvGbw9.js.gz"),
    },
    File {
        path: "files/index-lDfbOVGU.css",
        media_type: "text/css; charset=utf-8",
        etag: "\"b1c00740ddb94289\"",
        bytes: include_bytes!("dist/files/index-lDfbOVGU.css"),
        gzip: include_bytes!("dist/files/index-lDfbOVGU.css.gz"),
    },
    File {
        path: "files/worker-CpeHI-xs.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"d3e2bbfb087ac2cb\"",
        bytes: include_bytes!("dist/files/worker-CpeHI-xs.js"),
        gzip: include_bytes!("dist/files/worker-CpeHI-xs.js.gz"),
    },
    File {
        path: "index.html",
        media_type: "text/html; charset=utf-8",
        etag: "\"a18e194914d41818\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
