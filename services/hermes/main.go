// Command hermes is the command line of Hermes Runtime, and with `hermes dev` the whole runtime in one process.
package main

import (
	"os"

	"github.com/hermes-runtime/hermes/services/hermes/internal/cli"
	"github.com/hermes-runtime/hermes/services/toolexec/app"
)

func main() {
	if app.IsChild(os.Args) { // one tool call of `hermes dev` in its own process
		os.Exit(app.RunChild())
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
