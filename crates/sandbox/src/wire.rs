//! Messages with descriptors between the supervisor and the processes that it started.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::Pid;

use crate::limits::MESSAGE_FDS_MAX;

/// What arrived.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) data: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// The sender, if the socket asks the kernel to say so.
    pub(crate) sender: Option<Pid>,
}

/// Sends one message with descriptors.
pub(crate) fn send(socket: impl AsFd, data: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let slices = [io::IoSlice::new(data)];
    let sent = loop {
        match rustix::net::sendmsg(&socket, &slices, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if sent == data.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one message of at most 64 KiB. Empty data means that the other end is closed.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Message> {
    let mut data = vec![0u8; 64 << 10];
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut was_reset = false;
    let received = loop {
        let mut slices = [io::IoSliceMut::new(&mut data)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(&socket, &mut slices, &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            // A peer that ended with unread messages resets the connection. The kernel says so once,
            // before it hands out what the peer had sent.
            Err(rustix::io::Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(rustix::io::Errno::CONNRESET) => return Ok(Message::default()),
            other => break other?,
        }
    };
    let mut message = Message::default();
    for part in ancillary.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(fds) => message.fds.extend(fds),
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                message.sender = Some(credentials.pid);
            }
            _ => {}
        }
    }
    data.truncate(received.bytes);
    message.data = data;
    Ok(message)
}

/// Waits until the descriptor can be read. False if the time is over.
pub(crate) fn wait_readable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    Ok(poll(&mut fds, Some(timeout))? > 0)
}

/// Polls; a signal that interrupts counts as nothing being ready.
pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Err(rustix::io::Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}

/// Receives a message within the time, or fails with `TimedOut`.
pub(crate) fn receive_within(socket: impl AsFd, timeout: Duration) -> io::Result<Message> {
    if !wait_readable(&socket, timeout)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    receive(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::SocketType;

    #[test]
    fn the_last_word_of_a_peer_is_heard_though_it_did_not_listen() {
        let (here, there) = crate::sys::socket_pair(SocketType::SEQPACKET).unwrap();
        send(&there, b"last word", &[]).unwrap();
        send(&here, b"unread", &[]).unwrap();
        drop(there);
        assert_eq!(receive(&here).unwrap().data, b"last word");
        assert_eq!(receive(&here).unwrap().data, b"");
    }

    #[test]
    fn descriptors_travel_with_a_message() {
        let (here, there) = crate::sys::socket_pair(SocketType::SEQPACKET).unwrap();
        send(&here, b"take this", &[here.as_fd(), there.as_fd()]).unwrap();
        let message = receive_within(&there, Duration::from_secs(5)).unwrap();
        assert_eq!((message.data.as_slice(), message.fds.len()), (b"take this".as_slice(), 2));
        let waited = receive_within(&there, Duration::from_millis(1));
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
