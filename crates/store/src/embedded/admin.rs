//! Backups of a data folder that a running process has open.
//!
//! Only one process may open a folder, so a backup of a running venue has to be made by its own
//! process. It listens on a socket in the folder, which only its own user may use, and accepts one
//! request per connection: a line `backup PATH`, answered by `ok ROWS BLOBS` or `error TEXT`.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::folder::{CopyReport, DataFolder};
use crate::limits::{ADMIN_REQUEST_BYTES_MAX, ADMIN_REQUEST_TIME_MAX, SOCKET_PATH_BYTES_MAX};

const SOCKET: &str = "control.sock";

/// The listener for requests about an open folder. Stops when dropped.
pub struct AdminSocket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminSocket {
    /// Starts to listen.
    pub fn start(folder: Arc<DataFolder>) -> io::Result<Self> {
        let path = folder.path().join(SOCKET);
        let (_folder, address) = short_address(folder.path())?;
        // This process holds the folder, so a socket in it is left over from an earlier process.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&address)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("store-control".to_owned());
        let thread = thread.spawn(move || listen(&listener, &folder, &stopped))?;
        Ok(AdminSocket { path, stop, thread: Some(thread) })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the listener, which then sees the stop flag.
        let _ = self.path.parent().map(connect);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn connect(folder: &Path) -> io::Result<UnixStream> {
    let (_folder, address) = short_address(folder)?;
    UnixStream::connect(address)
}

/// The address of the socket in a folder, and what must stay open while it is used. An address has at
/// most 107 bytes; a folder with a longer path is named by its descriptor.
fn short_address(folder: &Path) -> io::Result<(Option<fs::File>, PathBuf)> {
    let path = folder.join(SOCKET);
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((None, path));
    }
    let opened = fs::File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()));
    Ok((Some(opened), path))
}

fn listen(listener: &UnixListener, folder: &DataFolder, stop: &AtomicBool) {
    for connection in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        // A client that disconnects early only misses the answer.
        let _ = connection.and_then(|connection| serve(&connection, folder));
    }
}

fn serve(mut connection: &UnixStream, folder: &DataFolder) -> io::Result<()> {
    connection.set_read_timeout(Some(ADMIN_REQUEST_TIME_MAX))?;
    let mut request = String::new();
    BufReader::new(connection).take(ADMIN_REQUEST_BYTES_MAX).read_line(&mut request)?;
    let answer = match request.trim_end_matches('\n').split_once(' ') {
        Some(("backup", path)) => match folder.backup(Path::new(path)) {
            Ok(CopyReport { rows, blobs }) => format!("ok {rows} {blobs}"),
            Err(error) => format!("error {error}"),
        },
        _ => "error unknown request".to_owned(),
    };
    writeln!(connection, "{answer}")
}

/// Requests a backup from the process that has `data` open. `None` if no process listens.
pub fn request_backup(data: &Path, destination: &Path) -> io::Result<Option<CopyReport>> {
    let Ok(mut connection) = connect(data) else { return Ok(None) };
    writeln!(connection, "backup {}", destination.display())?;
    let mut answer = String::new();
    BufReader::new(connection).take(ADMIN_REQUEST_BYTES_MAX).read_line(&mut answer)?;
    let answer = answer.trim_end();
    let numbers = answer
        .strip_prefix("ok ")
        .and_then(|rest| rest.split_once(' '))
        .and_then(|(rows, blobs)| Some((rows.parse().ok()?, blobs.parse().ok()?)));
    match numbers {
        Some((rows, blobs)) => Ok(Some(CopyReport { rows, blobs })),
        None => Err(io::Error::other(answer.trim_start_matches("error ").to_owned())),
    }
}
