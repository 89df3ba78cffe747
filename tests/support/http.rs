//! A small HTTP/1.1 client that exposes the bytes, the headers and the line ends.

use std::io;
use std::net::SocketAddr;

use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request without headers or body.
    pub fn new(method: &str, path: &str) -> Self {
        let method = method.to_owned();
        let path = path.to_owned();
        Request { method, path, headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_lowercase(), value.to_owned()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a JSON body.
    pub fn json(self, body: &Json) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// The bytes of the request, for a venue at this address.
    pub fn to_bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            text.push_str(&format!("host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// The status and the headers of a response.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status.
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status and headers.
    pub head: Head,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Json {
        match serde_json::from_slice(&self.body) {
            Ok(json) => json,
            Err(error) => panic!("{error} in the answer {}: {}", self.status(), self.text()),
        }
    }

    /// Returns the response. Panics if it has another status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status(), status, "{}", self.text());
        self
    }

    /// Checks that it is an error with every required member, and returns its JSON.
    #[track_caller]
    pub fn expect_error(self, status: u16, code: &str) -> Json {
        let json = self.expect(status).json();
        assert_eq!(json["code"], code, "{json}");
        for name in ["error", "retry", "hint"] {
            assert!(json[name].is_string(), "no {name} in {json}");
        }
        json
    }
}

/// A connection that stays open.
pub struct Connection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream), address })
    }

    /// Sends a request and reads the response.
    pub async fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        self.send(request).await?;
        if request.method == "HEAD" {
            // Its response has the headers of another one, and no body.
            return Ok(Reply { head: self.head().await?, body: Vec::new() });
        }
        self.reply().await
    }

    /// Sends a request without reading the response.
    pub async fn send(&mut self, request: &Request) -> io::Result<()> {
        self.send_bytes(&request.to_bytes(self.address)).await
    }

    /// Sends raw bytes.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes).await
    }

    /// Reads the next response.
    pub async fn reply(&mut self) -> io::Result<Reply> {
        let head = self.head().await?;
        let mut body = Vec::new();
        if head.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await? {
                body.extend_from_slice(&chunk);
            }
        } else if let Some(len) = head.header("content-length").and_then(|len| len.parse().ok()) {
            let has_body = head.status != 304;
            body.resize(if has_body { len } else { 0 }, 0);
            self.stream.read_exact(&mut body).await?;
        }
        Ok(Reply { head, body })
    }

    /// Reads the status and the headers of the next response, but not its body.
    pub async fn head(&mut self) -> io::Result<Head> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| broken("not a status line"))?;
        let mut headers = Vec::new();
        loop {
            match self.line().await?.split_once(':') {
                Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
                None => return Ok(Head { status, headers }),
            }
        }
    }

    /// The next chunk of a chunked body; `None` at its end.
    pub async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line().await?;
        let len =
            usize::from_str_radix(&line, 16).map_err(|_| broken("not the size of a chunk"))?;
        let mut chunk = vec![0; len];
        self.stream.read_exact(&mut chunk).await?;
        self.line().await?;
        Ok((len > 0).then_some(chunk))
    }

    /// Returns true if the venue has closed the connection.
    pub async fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf().await, Ok([]) | Err(_))
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.strip_suffix("\r\n").ok_or_else(|| broken("a line must end with CRLF"))?;
        Ok(line.to_owned())
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
