//! What the tests of blobs stand on: disks that skip a sync, and a driver that cuts the power.

pub mod crash;
pub mod forgetful;
