//! Simulation for the tests of blobs: disks that skip a sync, and a driver that crashes them.

pub mod crash;
pub mod forgetful;
