package admin

import "testing"

// TestAlterDatabase: doctor's statement gives a database the value that pg_settings shows.
func TestAlterDatabase(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"DateStyle", "German, DMY", `ALTER DATABASE "a""b" SET DateStyle TO 'German, DMY'`},
		{"search_path", `"$user", public`, `ALTER DATABASE "a""b" SET search_path TO "$user", public`},
		{"search_path", `""`, `ALTER DATABASE "a""b" SET search_path TO ''`},
		{"search_path", "", `ALTER DATABASE "a""b" SET search_path TO ''`},
	} {
		if got := alterDatabase(`a"b`, c.name, c.value); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.name, c.value, got, c.want)
		}
	}
}
