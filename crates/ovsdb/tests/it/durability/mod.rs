//! What was acknowledged is there after the process was killed and, where it was asked for, after a power
//! cut, whatever the disk did.

mod disk;
mod group;
mod journal;
mod storage;

use testkit::chance;
