//! Which addresses are public.
//!
//! A request that a caller makes a venue send must not reach what only the venue's machine or network
//! can reach: other services on the machine, cloud metadata, the operator's network. For IPv4 the
//! ranges that are not public are listed (the registries of RFC 6890). For IPv6 only global unicast
//! is public, without the ranges that embed or translate other addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address that is not public, with its article; `None` if the address is public.
pub(super) fn class(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

/// An address of Azure that looks public and serves a machine's metadata.
const AZURE_METADATA: [u8; 4] = [168, 63, 129, 16];

fn class_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "an unspecified",
        [127, ..] => "a loopback",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private",
        [100, 64..=127, ..] => "a carrier-grade NAT",
        [169, 254, 169, 254] | AZURE_METADATA => "a cloud metadata",
        [169, 254, ..] => "a link-local",
        [192, 0, 0, _] | [192, 88, 99, _] => "a protocol assignment",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "a documentation",
        [198, 18..=19, ..] => "a benchmarking",
        [224..=239, ..] => "a multicast",
        [240..=255, ..] => "a reserved",
        _ => return None,
    })
}

fn class_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    Some(match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => "an unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "a loopback",
        // Embeds an IPv4 address; there is no use for it in a URL or in the records of a name.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0, 0, ..] => "an IPv4-mapped",
        // Networks with IPv6 only reach IPv4 through this prefix, so it is as public as the address
        // that it embeds.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return class_v4(embedded(high, low)),
        [0xfc00..=0xfdff, ..] => "a unique local",
        [0xfe80..=0xfebf, ..] => "a link-local",
        [0xfec0..=0xfeff, ..] => "a site-local",
        [0xff00..=0xffff, ..] => "a multicast",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => "a documentation",
        [0x2001, 0..=0x01ff, ..] => "a protocol assignment",
        [0x2002, ..] => "a 6to4",
        [0x2000..=0x3fff, ..] => return None,
        _ => "a reserved",
    })
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(class_expected: Option<&str>, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(class(address.parse().unwrap()), class_expected, "{address}");
        }
    }

    #[test]
    fn only_global_unicast_is_public() {
        check(None, &["1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0"]);
        check(None, &["192.167.255.255", "198.17.0.1", "223.255.255.255", "11.0.0.0"]);
        check(None, &["2606:4700::1111", "2a00:1450:4001::1", "2001:4860::8888", "2001:200::1"]);
    }

    #[test]
    fn every_class_of_ipv4_addresses_is_known() {
        check(Some("an unspecified"), &["0.0.0.0", "0.255.255.255"]);
        check(Some("a loopback"), &["127.0.0.1", "127.255.255.255"]);
        check(Some("a private"), &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"]);
        check(Some("a carrier-grade NAT"), &["100.64.0.0", "100.127.255.255"]);
        check(Some("a cloud metadata"), &["169.254.169.254", "168.63.129.16"]);
        check(Some("a link-local"), &["169.254.0.1"]);
        check(Some("a protocol assignment"), &["192.0.0.8", "192.88.99.1"]);
        check(Some("a documentation"), &["192.0.2.1", "198.51.100.1", "203.0.113.1"]);
        check(Some("a benchmarking"), &["198.18.0.1", "198.19.255.255"]);
        check(Some("a multicast"), &["224.0.0.1", "239.255.255.255"]);
        check(Some("a reserved"), &["240.0.0.1", "255.255.255.255"]);
    }

    #[test]
    fn every_class_of_ipv6_addresses_is_known() {
        check(Some("an unspecified"), &["::"]);
        check(Some("a loopback"), &["::1"]);
        check(Some("an IPv4-mapped"), &["::ffff:127.0.0.1", "::ffff:1.1.1.1", "::7f00:1"]);
        check(Some("a unique local"), &["fc00::1", "fd00:ec2::254", "fdff::1"]);
        check(Some("a link-local"), &["fe80::1", "febf::1"]);
        check(Some("a site-local"), &["fec0::1"]);
        check(Some("a multicast"), &["ff02::1", "ffff::1"]);
        check(Some("a documentation"), &["2001:db8::1", "3fff::1"]);
        check(Some("a protocol assignment"), &["2001::1", "2001:10::1"]);
        check(Some("a 6to4"), &["2002:7f00:1::"]);
        check(Some("a reserved"), &["100::1", "64:ff9b:1::1", "4000::1", "5f00::1"]);
    }

    #[test]
    fn a_translated_address_has_the_class_of_its_ipv4_address() {
        check(Some("a loopback"), &["64:ff9b::7f00:1"]);
        check(Some("a cloud metadata"), &["64:ff9b::a9fe:a9fe"]);
        check(None, &["64:ff9b::101:101"]);
    }
}
