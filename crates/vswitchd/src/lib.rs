//! vswitchd
