package rowstore

import (
	"cmp"
	"fmt"
	"io/fs"
	"time"
)

// SchemaError reports that the schema of a database is not the one that the program works with.
type SchemaError struct {
	// Database is its file, or its host and name: no credentials.
	Database string
	// Have is the version in the database, 0 = it has no semel tables. Want is the version that this program works with.
	Have, Want int
	// Absent: there is no such file. The error wraps fs.ErrNotExist.
	Absent bool
	// Adapter is the package, Migrate what brings the schema up to date.
	Adapter, Migrate string
}

// Unwrap is fs.ErrNotExist when there is no file.
func (e *SchemaError) Unwrap() error {
	if e.Absent {
		return fs.ErrNotExist
	}
	return nil
}

func (e *SchemaError) Error() string {
	missing := "has no semel tables"
	switch {
	case e.Have > e.Want:
		return fmt.Sprintf("database %s was made by a newer semel (schema %d, this program knows %d); Try: a newer semel",
			e.Database, e.Have, e.Want)
	case e.Have > 0:
		return fmt.Sprintf("database %s has schema %d, this program needs %d; Try: %s", e.Database, e.Have, e.Want, e.Migrate)
	case e.Absent:
		missing = "does not exist"
	}
	return fmt.Sprintf("database %s %s; Try: %s, or %s.Options{Create: true}", e.Database, missing, e.Migrate, e.Adapter)
}

// Default is a duration of an adapter's options.
type Default struct {
	Name    string
	Value   *time.Duration
	Default time.Duration
}

// SetDefaults sets durations that are 0 to their defaults. It refuses negative ones.
func SetDefaults(adapter string, all ...Default) error {
	for _, d := range all {
		if *d.Value < 0 {
			return fmt.Errorf("%s: Options.%s is %v, must not be negative", adapter, d.Name, *d.Value)
		}
		*d.Value = cmp.Or(*d.Value, d.Default)
	}
	return nil
}
