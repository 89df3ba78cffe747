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
        path: "files/index-Cb-C2Koq.css",
        media_type: "text/css; charset=utf-8",
        etag: "\"02454966cfcbef9e\"",
        bytes: include_bytes!("dist/files/index-Cb-C2Koq.css"),
        gzip: include_bytes!("dist/files/index-Cb-C2Koq.css.gz"),
    },
    File {
        path: "files/index-CpeSs8fC.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"be200844ff002d5c\"",
        bytes: include_bytes!("dist/files/index-CpeSs8fC.js"),
        gzip: include_bytes!("dist/files/index-CpeSs8fC.js.gz"),
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
        etag: "\"88c3037e77ae9a2e\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
