// Package canonjson writes JSON in one canonical form, so that two texts of the same value are the same bytes: RFC 8785
// (JSON Canonicalization Scheme), with one deliberate difference for numbers that a double cannot hold.
//
// # The form
//
// No white space; member names sorted by their UTF-16 code units; strings with the fewest escapes (\" \\ \b \t \n \f \r,
// other control characters as \u00xx in lower case, everything else literally); numbers as ECMAScript writes them.
//
// # What is rejected
//
// The input must be I-JSON (RFC 7493): text that is not JSON, invalid UTF-8, lone surrogates and an object with the same
// member name twice are errors, never guessed at: two readers of such a text may see two values, and a key must not
// depend on which of them is asked. Nesting deeper than [MaxDepth] and exponents beyond ±100,000,000 are errors too.
//
// # Numbers
//
// RFC 8785 reads every number as an IEEE 754 double, for which 9007199254740993 and 9007199254740992 are one number. As
// identities of orders they are two. So:
//
//   - A number whose double lies in the normal range below 2^53 in magnitude is written as that double, exactly as RFC
//     8785 says: 1, 1.0 and 1e0 are "1". Every integer of that range, and every fraction of up to 15 significant digits,
//     keeps its own text; longer fractions are rounded, so that 0.1 and 0.10000000000000001 (the same double, printed by
//     two languages) stay one number.
//   - Any other number (2^53 and above, and the subnormal range next to zero, where doubles lose digits) keeps its exact
//     decimal value, in ECMAScript's layout: 9007199254740993, 1e+30, 1e+400. No two different integers ever get the
//     same text, and no number but zero becomes 0.
//
// Whatever an RFC 8785 writer has produced is therefore canonical here too, byte for byte.
package canonjson
