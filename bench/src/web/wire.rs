//! The part of HTTP/1.1 that benchmarks need: requests as bytes, and responses with a length.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Fault;

/// How long the simple client waits for a response.
const ANSWER_WITHIN: Duration = Duration::from_secs(130);

/// A request without a body.
pub(crate) fn get(address: SocketAddr, path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n").into_bytes()
}

/// A request with a JSON body.
pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> Vec<u8> {
    with_body("POST", address, path, body)
}

/// A PUT request with a JSON body.
pub(crate) fn put(address: SocketAddr, path: &str, body: &str) -> Vec<u8> {
    with_body("PUT", address, path, body)
}

fn with_body(method: &str, address: SocketAddr, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The body of an invocation.
pub(crate) fn invocation(operation: &str, input: &str) -> String {
    format!(r#"{{"operation":"{operation}","input":{input}}}"#)
}

/// The head of a response: its status, the offset of its body, and the length of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) body_at: usize,
    pub(crate) length: usize,
}

/// The head of a response, or `None` if it is incomplete.
pub(crate) fn head_of(bytes: &[u8]) -> Result<Option<Head>, Fault> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let status = lines.next().and_then(|line| std::str::from_utf8(line.get(9..12)?).ok());
    let status = status.and_then(|status| status.parse().ok()).ok_or("an answer has no status")?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(15)?;
        let is_length = name.eq_ignore_ascii_case(b"content-length:");
        std::str::from_utf8(value).ok()?.trim().parse().ok().filter(|_| is_length)
    });
    Ok(Some(Head { status, body_at: end + 4, length: length.unwrap_or(0) }))
}

/// A client for requests that are not measured, one at a time.
pub(crate) struct Client {
    stream: TcpStream,
    address: SocketAddr,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Client, Fault> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Client { stream, address })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<(u16, Vec<u8>), Fault> {
        self.ask(&get(self.address, path, ""))
    }

    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>), Fault> {
        self.stream.write_all(request)?;
        let mut answer = Vec::with_capacity(4_096);
        let mut part = [0; 16 * 1024];
        loop {
            if let Some(head) = head_of(&answer)?
                && answer.len() >= head.body_at + head.length
            {
                return Ok((head.status, answer.split_off(head.body_at)));
            }
            match self.stream.read(&mut part)? {
                0 => return Err("the venue closed the connection".into()),
                count => answer.extend_from_slice(&part[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_when_its_head_is_whole() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-type: x\r\nContent-Length: 2\r\n\r\n{}";
        let head = Head { status: 201, body_at: answer.len() - 2, length: 2 };
        assert_eq!(head_of(answer).unwrap(), Some(head));
        assert_eq!(head_of(&answer[..30]).unwrap(), None);
        assert!(head_of(b"nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn a_request_says_how_long_its_body_is() {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let request = String::from_utf8(post(address, "/x", "{}")).unwrap();
        assert!(request.starts_with("POST /x HTTP/1.1\r\nHost: 127.0.0.1:80\r\n"), "{request}");
        assert!(request.ends_with("Content-Length: 2\r\n\r\n{}"), "{request}");
    }
}
