package edgehttp_test

import (
	"testing"

	"github.com/semel-dev/semel/edge/http/edgetest"
	"github.com/semel-dev/semel/memory"
)

func TestSuite(t *testing.T) {
	edgetest.Run(t, func(testing.TB) edgetest.Setup { return edgetest.Setup{Store: memory.NewStore()} })
}
