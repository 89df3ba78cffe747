//! A worker: processes that are confined already and wait for one cell.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::process::Pid;

use crate::cell::Input;
use crate::cgroup::Group;
use crate::launch::Launched;
use crate::limits::{INPUT_TIME_MAX, WORKER_START_MAX};
use crate::network::Network;
use crate::wire::{self, Message};
use crate::zygote::{self, StartError};

/// A worker that is ready. It is used once; dropping it kills its processes.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The init process of the worker's pid namespace.
    pub(crate) init: Option<Launched>,
    /// The process that will run the cell.
    pub(crate) cell_pid: Pid,
    /// Orders to the init process, and its last word.
    pub(crate) control: OwnedFd,
    /// The cell on its way in, and its report on its way out.
    pub(crate) cell: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// The folder in which the cell runs.
    pub(crate) folder: OwnedFd,
    /// Refused system calls.
    pub(crate) listener: OwnedFd,
    pub(crate) group: Option<Group>,
    pub(crate) network: Option<Network>,
    /// Takes over what takes time after the end.
    pub(crate) cleaner: Option<Sender<Remains>>,
}

/// What is left of a worker: its init process is ending, and its cgroups can be removed then.
#[derive(Debug)]
pub(crate) struct Remains {
    init: Launched,
    group: Option<Group>,
    network: Option<Network>,
}

impl Remains {
    /// Waits for the processes to be gone, removes the cgroups and gives the network namespace back.
    pub(crate) fn remove(self) {
        // The init process ends by itself after its last word; whatever keeps it is not awaited.
        if !zygote::reap_within(&self.init, Duration::from_secs(1)) {
            zygote::end(&self.init);
        }
        drop(self.network);
        drop(self.group);
    }
}

/// A worker that confines itself. Its process is killed if this is dropped.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) process: Partial,
    pub(crate) control: OwnedFd,
    pub(crate) cell: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// The processes of a worker that is not ready.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) init: Option<Launched>,
    pub(crate) group: Option<Group>,
    pub(crate) network: Option<Network>,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(init) = &self.init {
            zygote::end(init);
        }
    }
}

impl Spawned {
    /// Waits until the worker has confined itself.
    pub(crate) fn prepare(self) -> Result<Worker, StartError> {
        let Spawned { mut process, control, cell, stdout, stderr } = self;
        let folder = expect(&control, b"J")?;
        let folder = folder.fds.into_iter().next();
        let ready = wait_ready(&control, &cell)?;
        let listener = ready.fds.into_iter().next();
        let (Some(folder), Some(listener), Some(cell_pid)) = (folder, listener, ready.sender)
        else {
            return Err(StartError::Worker("it did not send its descriptors".to_owned()));
        };
        if let Some(group) = &process.group {
            group.attach(cell_pid)?;
        }
        for stream in [&stdout, &stderr, &cell] {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        let (init, group) = (process.init.take(), process.group.take());
        let network = process.network.take();
        let cleaner = None;
        Ok(Worker {
            init,
            cell_pid,
            control,
            cell,
            stdout,
            stderr,
            folder,
            listener,
            group,
            network,
            cleaner,
        })
    }
}

impl Worker {
    /// Limits the job folder to this size. A cgroup does so by itself, because files are memory.
    pub(crate) fn limit_folder(&self, bytes: u64) -> io::Result<()> {
        self.order(format!("T{bytes}").as_bytes(), &[])
    }

    /// Copies input files into the worker and makes them read-only.
    pub(crate) fn place_inputs(&self, inputs: &[Input], total: u64) -> io::Result<()> {
        if inputs.is_empty() {
            return Ok(());
        }
        self.order(format!("M{total}").as_bytes(), &[])?;
        for input in inputs {
            let mut file = input.file.try_clone()?;
            io::Seek::rewind(&mut file)?;
            self.order(format!("I{}", input.name).as_bytes(), &[file.as_fd()])?;
        }
        self.order(b"S", &[])
    }

    fn order(&self, data: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(&self.control, data, fds)?;
        let answer = wire::receive_within(&self.control, INPUT_TIME_MAX)?;
        match answer.data.split_first() {
            Some((b'A', _)) => Ok(()),
            Some((_, text)) => Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Hands the cell over. It starts at once.
    pub(crate) fn start(&self, job: &[u8]) -> io::Result<()> {
        let size =
            u32::try_from(job.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        rustix::io::ioctl_fionbio(&self.cell, false)?;
        let mut stream = File::from(self.cell.try_clone()?);
        stream.write_all(&[&size.to_be_bytes(), job].concat())?;
        rustix::io::ioctl_fionbio(&self.cell, true).map_err(Into::into)
    }

    /// Whether the init process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let Some(init) = &self.init else { return false };
        !wire::wait_readable(&init.pidfd, Duration::ZERO).unwrap_or(true)
    }

    /// Kills the init process, and with it everything in its namespace.
    pub(crate) fn kill_init(&self) {
        if let Some(init) = &self.init {
            let kill = rustix::process::Signal::KILL;
            let _ = rustix::process::pidfd_send_signal(&init.pidfd, kill);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(init) = self.init.take() else { return };
        let kill = rustix::process::Signal::KILL;
        if self.group.as_ref().is_some_and(Group::is_frozen) {
            let _ = self.group.as_ref().map(|group| group.freeze(false));
        }
        let _ = rustix::process::pidfd_send_signal(&init.pidfd, kill);
        let remains = Remains { init, group: self.group.take(), network: self.network.take() };
        match self.cleaner.take() {
            Some(cleaner) => {
                if let Err(unsent) = cleaner.send(remains) {
                    unsent.0.remove();
                }
            }
            None => remains.remove(),
        }
    }
}

fn expect(control: &OwnedFd, kind: &[u8]) -> Result<Message, StartError> {
    let message = wire::receive_within(control, WORKER_START_MAX)?;
    if message.data.starts_with(kind) {
        return Ok(message);
    }
    Err(StartError::Worker(match message.data.split_first() {
        Some((_, text)) => String::from_utf8_lossy(text).into_owned(),
        None => "its init process ended".to_owned(),
    }))
}

/// Waits for the cell's process to be ready, or for the reason why it never will be.
fn wait_ready(control: &OwnedFd, cell: &OwnedFd) -> Result<Message, StartError> {
    use rustix::event::{PollFd, PollFlags};
    let mut fds = [PollFd::new(cell, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
    wire::poll(&mut fds, Some(WORKER_START_MAX))?;
    let [cell_ready, control_ready] = fds.map(|fd| !fd.revents().is_empty());
    if cell_ready {
        let message = wire::receive(cell)?;
        if message.data == b"R" {
            return Ok(message);
        }
    }
    if control_ready || cell_ready {
        let message = expect(control, b"E")?;
        let text = String::from_utf8_lossy(message.data.get(1..).unwrap_or_default()).into_owned();
        return Err(StartError::Worker(text));
    }
    Err(StartError::Worker("it was not ready in time".to_owned()))
}
