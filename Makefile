# CI calls these targets and nothing else. `make` alone prints them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

SERVICES := ingress router worker toolexec egress api hermes
MODULES  := proto pkg services
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X github.com/hermes-runtime/hermes/services/internal/version.version=$(VERSION)
# Tests start real servers; two packages at a time keep a small machine responsive.
TESTFLAGS ?= -p 2 -timeout 15m

.PHONY: help
help: ## print this help
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: dev
dev: bin/hermes ## run everything in one process on embedded servers; in a terminal it opens the chat
	@bin/hermes dev

.PHONY: demo
demo: bin/hermes ## ask one question that needs a tool, show the path, exit 0 or 1
	@bin/hermes dev --demo

.PHONY: bin/hermes
bin/hermes:
	@go build -ldflags '$(LDFLAGS)' -o bin/hermes ./services/hermes

.PHONY: build
build: ## build one binary per service into bin/
	go build -ldflags '$(LDFLAGS)' -o bin/ $(SERVICES:%=./services/%)

.PHONY: setup-test
setup-test: ## find or install what the tests start: PostgreSQL, redis-server and npm
	@deploy/test/setup.sh

.PHONY: test
test: setup-test ## set up what is needed, then run unit, conformance, integration and e2e tests
	@go build -o bin/ $(SERVICES:%=./services/%) # compiled first, so that no test competes with the compiler
	go test $(TESTFLAGS) $$(go list $(MODULES:%=./%/...) | grep -v /services/e2e)
	go test $(TESTFLAGS) ./services/e2e/...

.PHONY: test-integration
test-integration: setup-test ## only what talks to real NATS, Redis and PostgreSQL
	go test $(TESTFLAGS) ./pkg/bus/... ./pkg/lease/... ./pkg/store/... ./services/...

.PHONY: test-e2e
test-e2e: setup-test ## only the end-to-end tests: services as processes on real servers
	go test $(TESTFLAGS) ./services/e2e/...

.PHONY: bench
bench: setup-test ## measure turns and the bare operations they are made of; writes docs/benchmarks.md
	go run ./services/e2e/bench

.PHONY: race
race: setup-test ## all tests under the race detector
	go test -race $(TESTFLAGS) $(MODULES:%=./%/...)

.PHONY: check
check: ## fast checks: formatting, vet, tidy modules
	@test -z "$$(gofmt -l pkg services)" || { gofmt -l pkg services; echo 'run make fmt'; exit 1; }
	go vet $(MODULES:%=./%/...)
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy -diff) || exit 1; done

.PHONY: lint
lint: ## golangci-lint over every module (built on the first run, which takes minutes)
	@for m in pkg services; do (cd $$m && GOWORK=off go tool -modfile=../deploy/verify/go.mod golangci-lint run ./...) || exit 1; done

.PHONY: fmt
fmt: ## format Go code
	gofmt -w pkg services

.PHONY: generate
generate: ## regenerate protobuf and SQL code
	@bin=$$(mktemp -d) && trap 'rm -rf '$$bin EXIT && \
	  (cd deploy/verify && GOWORK=off go build -o $$bin github.com/bufbuild/buf/cmd/buf google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc github.com/sqlc-dev/sqlc/cmd/sqlc) && \
	  (cd proto && PATH=$$bin:$$PATH buf lint && rm -rf gen && PATH=$$bin:$$PATH buf generate) && \
	  (cd pkg/store/pgstore && $$bin/sqlc generate)

.PHONY: verify
verify: generate ## regenerate and fail if anything changed
	@test -z "$$(git status --porcelain -- proto/gen pkg/store/pgstore/internal/dbgen)" || { git status --short -- proto/gen pkg/store/pgstore/internal/dbgen; git --no-pager diff -- proto/gen pkg/store/pgstore/internal/dbgen | head -50; exit 1; }

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES) deploy/verify; do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

.PHONY: images
images: ## build one image per service
	@for s in $(SERVICES); do docker build -f deploy/Dockerfile --build-arg SERVICE=$$s --build-arg VERSION=$(VERSION) -t hermes-$$s:$(VERSION) . || exit 1; done

.PHONY: up
up: ## start everything with docker compose
	docker compose up --build --detach --wait

.PHONY: down
down: ## stop it and forget its data
	docker compose down --volumes
