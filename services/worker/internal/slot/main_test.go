package slot

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redisserver.IgnoreProbes()) }
