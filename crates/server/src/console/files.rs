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
        path: "files/index-Bb1f2zSR.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"b16fa1d216d082e6\"",
        bytes: include_bytes!("dist/files/index-Bb1f2zSR.js"),
        gzip: include_bytes!("dist/files/index-Bb1f2zSR.js.gz"),
    },
    File {
        path: "files/index-lDfbOVGU.css",
        media_type: "text/css; charset=utf-8",
        etag: "\"b1c00740ddb94289\"",
        bytes: include_bytes!("dist/files/index-lDfbOVGU.css"),
        gzip: include_bytes!("dist/files/index-lDfbOVGU.css.gz"),
    },
    File {
        path: "files/worker-BUD9KqRE.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"30f0ab38e6610094\"",
        bytes: include_bytes!("dist/files/worker-BUD9KqRE.js"),
        gzip: include_bytes!("dist/files/worker-BUD9KqRE.js.gz"),
    },
    File {
        path: "index.html",
        media_type: "text/html; charset=utf-8",
        etag: "\"0efb736fd93f521c\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
