//! One request over one connection: connecting, TLS, sending, and reading the response.

use std::io::ErrorKind;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{Exchanged, Gate, OutboundError, Request, Response};
use crate::limits::{ADDRESSES_MAX, CONNECT_TIME, RESPONSE_HEAD_BYTES_MAX, RESPONSE_HEADERS_MAX};

/// A byte stream, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Connects to the first of the addresses that accepts the connection.
pub(super) async fn connect(
    addresses: &[SocketAddr],
    request: &Request,
    gate: &impl Gate,
) -> Result<TcpStream, OutboundError> {
    let mut reason = "its host name has no address".to_owned();
    for address in addresses.iter().take(ADDRESSES_MAX) {
        tokio::select! {
            connected = TcpStream::connect(address) => match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => reason = error.kind().to_string(),
            },
            () = gate.sleep(CONNECT_TIME) => reason = "the connection was not accepted in time".to_owned(),
        }
    }
    Err(OutboundError::Connection { host: request.host(), reason })
}

/// Adds TLS to a connection. The certificate must be for the host that the URL names.
pub(super) async fn start_tls(
    stream: TcpStream,
    request: &Request,
    tls: &tokio_rustls::TlsConnector,
) -> Result<impl Stream + use<>, OutboundError> {
    let failed = |reason: String| OutboundError::Connection { host: request.host(), reason };
    let host = request.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| failed("its host name cannot be in a certificate".to_owned()))?;
    tls.connect(name, stream).await.map_err(|error| failed(format!("TLS failed: {error}")))
}

/// Sends the request and reads the response. If `next` returns another request for the head of the
/// response, the body is not read.
pub(super) async fn exchange(
    stream: impl Stream,
    request: &Request,
    user_agent: &HeaderValue,
    next: impl Fn(StatusCode, &HeaderMap) -> Result<Option<Request>, OutboundError>,
) -> Result<Exchanged, OutboundError> {
    let failed = |error: hyper::Error| exchange_error(request, &error);
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(RESPONSE_HEADERS_MAX)
        .max_buf_size(RESPONSE_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let message = message(request, user_agent)?;
    let exchange = async {
        let response = sender.send_request(message).await.map_err(failed)?;
        let (head, body) = response.into_parts();
        check_head(request, &head.headers)?;
        if let Some(next) = next(head.status, &head.headers)? {
            return Ok(Exchanged::Redirected(Box::new(next)));
        }
        let body = read_body(request, &head.headers, body).await?;
        Ok(Exchanged::Answered(Response { status: head.status, headers: head.headers, body }))
    };
    // The connection is driven here and not by a task, so that it ends with this future. If it ends
    // first, the data that it has received must still be read.
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        ended = &mut exchange => return ended,
        _ended = connection => {}
    }
    exchange.await
}

fn message(
    request: &Request,
    user_agent: &HeaderValue,
) -> Result<hyper::Request<Full<Bytes>>, OutboundError> {
    let url = &request.url;
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    let mut message = hyper::Request::builder()
        .method(request.method.clone())
        .uri(target)
        .body(Full::new(request.body.clone()))
        .map_err(|error| OutboundError::Url(error.to_string()))?;
    let headers = message.headers_mut();
    headers.insert(USER_AGENT, user_agent.clone());
    headers.extend(request.headers.clone());
    let host =
        HeaderValue::try_from(host).map_err(|error| OutboundError::Url(error.to_string()))?;
    headers.insert(HOST, host);
    Ok(message)
}

async fn read_body(
    request: &Request,
    headers: &HeaderMap,
    mut body: Incoming,
) -> Result<Vec<u8>, OutboundError> {
    let bytes_max = request.response_bytes_max;
    let too_large = || OutboundError::TooLarge {
        host: request.host(),
        what: format!("more than {bytes_max} bytes"),
    };
    let declared =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if request.method != Method::HEAD
        && declared.is_some_and(|length: u64| length > bytes_max as u64)
    {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| exchange_error(request, &error))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// Checks the size of the head. The connection bounds only what it buffers at once, which lets
/// somewhat more pass.
fn check_head(request: &Request, headers: &HeaderMap) -> Result<(), OutboundError> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > RESPONSE_HEAD_BYTES_MAX { Err(head_too_large(request)) } else { Ok(()) }
}

fn head_too_large(request: &Request) -> OutboundError {
    let what = format!(
        "a head of more than {RESPONSE_HEADERS_MAX} headers or {RESPONSE_HEAD_BYTES_MAX} bytes"
    );
    OutboundError::TooLarge { host: request.host(), what }
}

fn exchange_error(request: &Request, error: &hyper::Error) -> OutboundError {
    // The library has a method for this, but only for servers. A test pins the text.
    if error.is_parse() && error.to_string().contains("too large") {
        return head_too_large(request);
    }
    OutboundError::Connection { host: request.host(), reason: describe(error) }
}

/// The cause of an error, without the library's context.
fn describe(error: &hyper::Error) -> String {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let kind = source.map(std::io::Error::kind);
    let is_cut_off = error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || kind == Some(ErrorKind::UnexpectedEof);
    match kind {
        _ if is_cut_off => "the connection was closed before the response was complete".to_owned(),
        _ if error.is_parse() => "the response is not HTTP".to_owned(),
        Some(kind) => kind.to_string(),
        None => error.to_string(),
    }
}
