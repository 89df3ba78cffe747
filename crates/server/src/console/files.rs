//! The files of the console. Written by `npm run build` in `ui/`; do not edit.

use super::File;

/// Every file, by its path below `/ui/`.
pub(super) const FILES: &[File] = &[
    File {
        path: "assets/icon-CsbjEDeU.svg",
        media_type: "image/svg+xml",
        etag: "\"97b9cfffc3f8e951\"",
        bytes: include_bytes!("dist/assets/icon-CsbjEDeU.svg"),
        gzip: include_bytes!("dist/assets/icon-CsbjEDeU.svg.gz"),
    },
    File {
        path: "assets/index-C7Q5uEd1.css",
        media_type: "text/css; charset=utf-8",
        etag: "\"f260af9db064394f\"",
        bytes: include_bytes!("dist/assets/index-C7Q5uEd1.css"),
        gzip: include_bytes!("dist/assets/index-C7Q5uEd1.css.gz"),
    },
    File {
        path: "assets/index-p5yTe3tH.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"20c21145caf04d09\"",
        bytes: include_bytes!("dist/assets/index-p5yTe3tH.js"),
        gzip: include_bytes!("dist/assets/index-p5yTe3tH.js.gz"),
    },
    File {
        path: "assets/worker-CpeHI-xs.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"d3e2bbfb087ac2cb\"",
        bytes: include_bytes!("dist/assets/worker-CpeHI-xs.js"),
        gzip: include_bytes!("dist/assets/worker-CpeHI-xs.js.gz"),
    },
    File {
        path: "index.html",
        media_type: "text/html; charset=utf-8",
        etag: "\"61ad108f9073cdb6\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
