package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// oldWord is a word that readers of the repository should not meet, and the one to write.
type oldWord struct {
	find    *regexp.Regexp
	instead string
	// fine are phrases in which the word is the right one.
	fine *regexp.Regexp
}

func old(find, instead, fine string) oldWord {
	w := oldWord{find: regexp.MustCompile(`(?i)\b(?:` + find + `)\b`), instead: instead}
	if fine != "" {
		w.fine = regexp.MustCompile(`(?i)` + fine)
	}
	return w
}

var oldWords = []oldWord{
	old(`letters?`, "dead letter", `dead[- _]?letters?|letters? (and|or) (a )?digits?|letters?, digits?|letter-spacing|(hebrew|small) letter|capital letters?|80 letters|is letter\b|::first-letter`),
	old(`mend|mends|mended|mending`, "fix; hint in output", ""),
	old(`answer|answers|answered|answering|unanswered`, "return; a server responds; response, result", ""),
	old(`in (the )?hand`, "in flight", ""),
	old(`strand|strands|stranded|stranding`, "abandon", ""),
	old(`without a word`, "expired, crashed", ""),
	old(`promise|promises|promised`, "guarantee", `new promise|await promise`),
	old(`front|fronts`, "cache, scan cursor, proxy", `in front\b|front[- ]?end|(move to|push) front\b|\.front\(`),
	old(`former|formerly`, "previous", ""),
	old(`mirror|mirrors|mirrored|mirroring`, "new key", `local mirror|output ?mirror`),
	old(`rekey`, "keymigration", ""),
	old(`noted|note only`, "remembered, logged", ""),
	old(`trail|trails`, "audit log; event log of processes", `cloud ?trail`),
	old(`twin|twins`, "local duplicate", ""),
	old(`suspect|suspects|suspected`, "quarantine", ""),
	old(`solo|condemned|bury|buries|buried|limbo|let go`, "quarantine, dead-letter, recycle, release", ""),
	old(`hand-?offs?`, "delivery", ""),
	old(`(given|gives?|giving|gave) back`, "return", ""),
	old(`pace|paced|paces`, "average handler time, rate", ""),
	old(`patience|patient`, "timeout, delay", ""),
	old(`rig|rigs`, "fixture", ""),
	old(`site|sites`, "sandbox", `(web|call|cross|same|sec-fetch|other|another)[- ]?site'?s?`),
	old(`scene|scenes`, "run", ""),
	old(`acts?`, "operation, action", `acts (on|as)|to act on|\bact on\b`),
	old(`story|stories`, "timeline, explain", ""),
	old(`catalogue|calm|leash|exam`, "scenarios, quiet, lease body, inspection", ""),
	old(`play|plays|played|playing`, "run", ""),
	old(`sightings?|watch routes`, "DuplicateRoute, DetectDuplicateRoutes", ""),
	old(`(comes?|came|coming) back`, "is redelivered", ""),
	old(`(stands?|stood|standing) beside`, "is stored next to", ""),
	old(`(is|are|was|were) over`, "has ended", `(is|was|are) over(load| ?run|size| the (limit|cap))`),
	old(`nobody (knows|knew)`, "the outcome is unknown", ""),
	old(`so many(eth)?`, "n", ""),
	old(`for ever`, "forever", ""),
	old(`(tells?|told|telling) of`, "logs, reports", ""),
	old(`(say|says|said|saying) so`, "logs, reports", ""),
	old(`told`, "logs, reports, returns", ""),
}

var humps = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// checkWords counts the lines of a text that have an old word, and names the word of each. Identifiers are taken apart.
func checkWords(path string, text []byte) (found []string) {
	if strings.HasPrefix(filepath.Base(path), "words") && filepath.Base(filepath.Dir(path)) == "repocheck" {
		return nil
	}
	for i, line := range strings.Split(string(text), "\n") {
		plain := strings.ReplaceAll(humps.ReplaceAllString(line, "$1$3 $2$4"), "_", " ")
		for _, w := range oldWords {
			seen := plain
			if w.fine != nil {
				seen = w.fine.ReplaceAllString(seen, "")
			}
			if m := w.find.FindString(seen); m != "" {
				found = append(found, fmt.Sprintf("%s:%d: %q: write %s", path, i+1, m, w.instead))
				break
			}
		}
	}
	return found
}
