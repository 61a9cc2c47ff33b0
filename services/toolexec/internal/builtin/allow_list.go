package builtin

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// BlockedError is a request to a place that the operator did not list.
type BlockedError struct {
	Place, Reason string
}

// Error names the allow-list, so that nobody takes it for a network problem.
func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s is blocked by allow_list: %s", e.Place, e.Reason)
}

// AllowList decides which hosts may be reached. Entries are
//
//	example.com       this host, on the port of the scheme
//	*.example.com     hosts beneath it, not itself
//	10.0.0.7:8080     exactly this host and port; may be a private address
//	*                 every host, on every port
//
// Only an entry with a port reaches private, loopback or link-local addresses.
type AllowList struct {
	exact    map[string]bool // host:port
	hosts    map[string]bool
	suffixes []string
	all      bool
}

// NewAllowList reads entries.
func NewAllowList(entries []string) AllowList {
	a := AllowList{exact: map[string]bool{}, hosts: map[string]bool{}}
	for _, e := range entries {
		e = strings.ToLower(strings.TrimSpace(e))
		switch {
		case e == "*":
			a.all = true
		case strings.HasPrefix(e, "*."):
			a.suffixes = append(a.suffixes, e[1:])
		case hasPort(e):
			a.exact[e] = true
		default:
			a.hosts[strings.Trim(e, "[]")] = true
		}
	}
	return a
}

// hasPort tells host:port and [v6]:port from a bare host or v6 address.
func hasPort(entry string) bool {
	i := strings.LastIndexByte(entry, ':')
	return i > 0 && (strings.Count(entry, ":") == 1 || entry[i-1] == ']')
}

// checkURL returns whether private addresses are fine too, or why not even public ones are.
func (a AllowList) checkURL(u *url.URL) (private bool, err error) {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	standard := defaultPort(u.Scheme)
	port := cmp.Or(u.Port(), standard)
	place := net.JoinHostPort(host, port)
	if a.exact[place] {
		return true, nil
	}
	if a.all || port == standard && (a.hosts[host] || a.beneath(host)) {
		return false, nil
	}
	return false, &BlockedError{Place: place, Reason: "it is not in toolexec.allow_hosts"}
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

func (a AllowList) beneath(host string) bool {
	for _, s := range a.suffixes {
		if len(host) > len(s) && strings.HasSuffix(host, s) {
			return true
		}
	}
	return false
}

// notPublic are ranges that are no single public host although they look global.
func notPublic() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("100.64.0.0/10"), // carrier NAT, some clouds' metadata
		netip.MustParsePrefix("192.0.0.0/24"),
		netip.MustParsePrefix("198.18.0.0/15"),
		netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("64:ff9b::/96"),   // NAT64: a v4 address inside
		netip.MustParsePrefix("64:ff9b:1::/48"), // local NAT64
		netip.MustParsePrefix("2001::/32"),      // Teredo
		netip.MustParsePrefix("2002::/16"),      // 6to4
		netip.MustParsePrefix("fec0::/10"),      // old site-local
		netip.MustParsePrefix("::/96"),          // old v4-compatible
	}
}

// isPublic reports whether an address is on the internet.
func isPublic(addr netip.Addr) bool {
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	for _, p := range notPublic() {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}
