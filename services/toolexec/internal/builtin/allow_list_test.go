package builtin

import (
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllowList_MatchesHostsAndPorts(t *testing.T) {
	t.Parallel()
	listed := NewAllowList([]string{"example.com", "*.Example.org", "10.0.0.7:8080", "[::1]:9000", "2001:db8::1", " api.test:8443 "})
	everything := NewAllowList([]string{"*", "10.0.0.7:8080"})
	for _, tc := range []struct {
		list    AllowList
		url     string
		allowed bool
		private bool
	}{
		{listed, "https://example.com/", true, false},
		{listed, "http://EXAMPLE.com./x", true, false},
		{listed, "https://example.com:8443/", false, false},
		{listed, "http://example.com:443/", false, false},
		{listed, "https://sub.example.com/", false, false},
		{listed, "https://a.b.example.org/", true, false},
		{listed, "https://example.org/", false, false},
		{listed, "https://evilexample.org/", false, false},
		{listed, "http://10.0.0.7:8080/", true, true},
		{listed, "http://10.0.0.7/", false, false},
		{listed, "http://[::1]:9000/", true, true},
		{listed, "http://[2001:db8::1]/", true, false},
		{listed, "https://api.test:8443/", true, true},
		{listed, "https://api.test/", false, false},
		{everything, "https://anything.test:1234/", true, false},
		{everything, "http://10.0.0.7:8080/", true, true},
		{NewAllowList(nil), "https://example.com/", false, false},
	} {
		u, err := url.Parse(tc.url)
		require.NoError(t, err)
		private, err := tc.list.checkURL(u)
		if tc.allowed {
			require.NoError(t, err, tc.url)
		} else {
			require.ErrorContains(t, err, "blocked by allow_list", tc.url)
		}
		require.Equal(t, tc.private, private, tc.url)
	}
}

func TestIsPublic_KnowsAddressesThatAreNot(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "0.1.2.3", "100.100.100.200",
		"192.0.0.8", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::", "::1", "::ffff:127.0.0.1",
		"::ffff:10.0.0.1", "::7f00:1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::a00:1", "2002:a00:1::",
		"2001:0:1::1", "fec0::1",
	} {
		require.False(t, isPublic(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "::ffff:1.1.1.1", "2606:4700:4700::1111"} {
		require.True(t, isPublic(netip.MustParseAddr(a)), a)
	}
}
