//! A server on loopback that counts what operations with effects send to it.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::Fault;

/// Bytes of a request that are read: all of a request of this benchmark.
const REQUEST_BYTES: usize = 4_096;

/// Counts the requests for each path. A path `/effect/MS/…` is answered after that many milliseconds.
pub(super) struct EffectServer {
    pub(super) address: SocketAddr,
    counts: Arc<Mutex<HashMap<String, u32>>>,
}

impl EffectServer {
    pub(super) fn start() -> Result<EffectServer, Fault> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let counts = Arc::<Mutex<HashMap<String, u32>>>::default();
        let shared = Arc::clone(&counts);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let counts = Arc::clone(&shared);
                // A client that was killed leaves a broken connection.
                std::thread::spawn(move || serve(stream, &counts).ok());
            }
        });
        Ok(EffectServer { address, counts })
    }

    /// The number of different effects. Fails if one of them happened more than once.
    pub(super) fn check_each_once(&self) -> Result<usize, Fault> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let repeated: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        match repeated.first() {
            None => Ok(counts.len()),
            Some((path, count)) => {
                let effects = repeated.len();
                Err(format!("{effects} effects happened twice, such as {path}: {count}").into())
            }
        }
    }
}

fn serve(mut stream: TcpStream, counts: &Mutex<HashMap<String, u32>>) -> Result<(), Fault> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut bytes = [0; REQUEST_BYTES];
    let mut filled = 0;
    while !bytes[..filled].windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut bytes[filled..])? {
            0 => return Ok(()),
            count => filled += count,
        }
    }
    let line = bytes[..filled].split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line)?;
    let path = line.split(' ').nth(1).ok_or("a request without a path")?;
    *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default() += 1;
    let ms = path.split('/').nth(2).and_then(|ms| ms.parse().ok()).unwrap_or(0);
    std::thread::sleep(Duration::from_millis(ms));
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    Ok(stream.write_all(answer.as_bytes())?)
}
