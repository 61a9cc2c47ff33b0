package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGuarantees_NameTestsThatExist holds docs/guarantees.md to its tests: each is named with the folder that holds it.
func TestGuarantees_NameTestsThatExist(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/guarantees.md")
	require.NoError(t, err)
	names, folder := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`"), regexp.MustCompile("\\(`((?:services|pkg)/[a-z0-9/]+)`\\)")
	checked := 0
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		ends := folder.FindAllStringSubmatchIndex(line, -1)
		for _, at := range names.FindAllStringSubmatchIndex(line, -1) {
			name := line[at[2]:at[3]]
			require.NotEmpty(t, ends, "%s stands without its folder", name)
			dir := ""
			for _, end := range ends { // the first folder behind the name
				if end[0] > at[0] {
					dir = line[end[2]:end[3]]
					break
				}
			}
			require.NotEmpty(t, dir, "%s stands without its folder", name)
			require.True(t, defines(t, filepath.Join("../..", dir), name), "%s is not in %s", name, dir)
			checked++
		}
	}
	require.Greater(t, checked, 30)
}

// defines reports whether a test of a folder has that name.
func defines(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(source), "func "+name+"(") {
			return true
		}
	}
	return false
}
