package sweep

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBucket_DoublesUpTo64SecondsThenOnePerMinute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		age  time.Duration
		want int64
	}{
		{0, 0},
		{time.Second, 0},
		{2 * time.Second, 0},
		{4*time.Second - 1, 0},
		{4 * time.Second, 1},
		{8*time.Second - 1, 1},
		{8 * time.Second, 2},
		{16 * time.Second, 3},
		{32 * time.Second, 4},
		{64*time.Second - 1, 4},
		{64 * time.Second, 5},
		{124*time.Second - 1, 5},
		{124 * time.Second, 6},
		{184 * time.Second, 7},
		{64*time.Second + time.Hour, 65},
	} {
		require.Equal(t, c.want, bucket(c.age), "age %s", c.age)
	}
}

func TestWorkersWanted_FillsThreeQuartersOfTheSlots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		running, queued, slots int
		want                   int64
	}{
		{0, 0, 100, 0}, {1, 0, 100, 1}, {75, 0, 100, 1}, {70, 6, 100, 2}, {0, 300, 100, 4},
	} {
		require.Equal(t, c.want, workersWanted(c.running, c.queued, c.slots), "%+v", c)
	}
}
