package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

var errPrivate = errors.New("the address of the receiver is not public")

// publicOnly refuses a connection once the name is resolved, so that no name can lead to an address inside.
func publicOnly(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errPrivate, err)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !public(ip.Unmap()) {
		return errPrivate
	}
	return nil
}

// notPublic lists ranges that netip has no predicate for: this network, shared address space, protocol assignments,
// documentation, benchmarks, reserved, and IPv6 prefixes that embed IPv4 addresses.
func notPublic() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("100.64.0.0/10"),
		netip.MustParsePrefix("192.0.0.0/24"),
		netip.MustParsePrefix("192.0.2.0/24"),
		netip.MustParsePrefix("198.18.0.0/15"),
		netip.MustParsePrefix("198.51.100.0/24"),
		netip.MustParsePrefix("203.0.113.0/24"),
		netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("::/96"),
		netip.MustParsePrefix("64:ff9b::/96"),
		netip.MustParsePrefix("64:ff9b:1::/48"),
		netip.MustParsePrefix("2001::/32"),
		netip.MustParsePrefix("2001:db8::/32"),
		netip.MustParsePrefix("2002::/16"),
	}
}

func public(ip netip.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, p := range notPublic() {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}
