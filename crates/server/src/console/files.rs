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
        path: "files/index-C8QTw2lW.js",
        media_type: "text/javascript; charset=utf-8",
        etag: "\"f06b5515256b4ca1\"",
        bytes: include_bytes!("dist/files/index-C8QTw2lW.js"),
        gzip: include_bytes!("dist/files/index-C8QTw2lW.js.gz"),
    },
    File {
        path: "files/index-Ct30NlMQ.css",
        media_type: "text/css; charset=utf-8",
        etag: "\"b69bcf27fb878787\"",
        bytes: include_bytes!("dist/files/index-Ct30NlMQ.css"),
        gzip: include_bytes!("dist/files/index-Ct30NlMQ.css.gz"),
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
        etag: "\"d330506ace7f0131\"",
        bytes: include_bytes!("dist/index.html"),
        gzip: include_bytes!("dist/index.html.gz"),
    },
];
