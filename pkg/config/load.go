package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// EnvPrefix starts every environment variable that is configuration: HERMES_POSTGRES_URL sets postgres.url.
const EnvPrefix = "HERMES_"

// EnvFile names the configuration file: HERMES_CONFIG.
const EnvFile = EnvPrefix + "CONFIG"

// delimiter separates the parts of a key inside koanf. It is not "." because names of channels and hosts hold dots.
const delimiter = "\x1f"

// Load returns Default, changed by the YAML file at path ("" = none) and then by environ ("KEY=value" entries). It does
// not validate the values, see Validate.
func Load(path string, environ []string) (Config, error) {
	k := koanf.New(delimiter)
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return Config{}, fmt.Errorf("read configuration %s: %w", path, err)
		}
	}
	env, err := readEnv(environ)
	if err != nil {
		return Config{}, err
	}
	for key, value := range env {
		if err := k.Set(strings.ReplaceAll(key, ".", delimiter), value); err != nil {
			return Config{}, fmt.Errorf("configuration key %s: %w", key, err)
		}
	}
	cfg := Default()
	dropReplacedDefaults(&cfg, k)
	if err := decode(k, &cfg); err != nil {
		if path == "" {
			return Config{}, fmt.Errorf("configuration: %w", err)
		}
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return cfg, nil
}

// LoadProcess loads the file that path or HERMES_CONFIG names, and the environment of this process.
func LoadProcess(path string) (Config, error) {
	if path == "" {
		path = os.Getenv(EnvFile)
	}
	return Load(path, os.Environ())
}

// Env returns the value that the environment of this process gives to key, "" if it gives none: Env("postgres.url") reads
// HERMES_POSTGRES_URL.
func Env(key string) string { return os.Getenv(envName(key)) }

func envName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// dropReplacedDefaults removes the default entries of maps that the operator fills, so that naming one tenant or one
// profile does not silently keep the demo beside it. The defaults' names stay usable: their fields merge.
func dropReplacedDefaults(cfg *Config, k *koanf.Koanf) {
	if k.Exists("tenants") {
		cfg.Tenants = nil
	}
	if k.Exists("profiles") {
		cfg.Profiles = nil
	}
}

func decode(k *koanf.Koanf, cfg *Config) error {
	err := k.UnmarshalWithConf("", cfg, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName:          "koanf",
		Result:           cfg,
		ErrorUnused:      true,
		WeaklyTypedInput: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(),
			mapstructure.TextUnmarshallerHookFunc(),
			mapstructure.StringToSliceHookFunc(","),
		),
	}})
	return flatten(err)
}

// flatten turns mapstructure's nested report into one line per problem.
func flatten(err error) error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, flatten(e))
		}
		return errors.Join(errs...)
	}
	return err
}

// readEnv maps HERMES_ variables to keys. A variable that belongs to no key fails, as an unknown key in the file does.
func readEnv(environ []string) (map[string]string, error) {
	known := map[string]string{}
	for _, key := range scalarKeys("", reflect.TypeFor[Config]()) {
		known[envName(key)] = key
	}
	values := map[string]string{}
	var unknown []string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvPrefix) || name == EnvFile {
			continue
		}
		key, ok := known[name]
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		values[key] = value
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		return nil, fmt.Errorf("environment: %s: no such configuration key", strings.Join(unknown, ", "))
	}
	return values, nil
}

// scalarKeys lists the keys below t that one variable can set: everything but maps.
func scalarKeys(prefix string, t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("koanf")
		if name == "" || name == "-" || f.Type.Kind() == reflect.Map {
			continue
		}
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Secret]() {
			keys = append(keys, scalarKeys(prefix+name+".", f.Type)...)
			continue
		}
		keys = append(keys, prefix+name)
	}
	return keys
}
