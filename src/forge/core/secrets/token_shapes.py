"""The shapes of well-known credentials: a literal that each one holds, and an expression that reads it from there.

The facts (prefixes, lengths, alphabets) are those of the public rule lists of gitleaks and detect-secrets. Literals are
lower case and are searched for in the lower-cased text; the expression is tried only where its literal stands. Where it
has a group, the group alone is the secret. Every expression is bounded, or takes all that it has looked at.
"""

from __future__ import annotations

# after a letter or a digit a prefix is part of another word
PREFIXES: dict[str, str] = {
    # model providers
    "sk-": r"sk-(?:[A-Za-z0-9]{20,}|(?=[a-z_-]{0,32}[A-Z0-9])[\w-]{20,})",
    "pk-": r"pk-(?:[A-Za-z0-9]{20,}|lf-[\w-]{20,})",
    "rk-": r"rk-[A-Za-z0-9]{20,}",
    "hf_": r"hf_[A-Za-z0-9]{30,}",
    "gsk_": r"gsk_[A-Za-z0-9]{30,}",
    "xai-": r"xai-[A-Za-z0-9]{40,}",
    "pplx-": r"pplx-[A-Za-z0-9]{30,}",
    "r8_": r"r8_[A-Za-z0-9]{30,}",
    "tvly-": r"tvly-[\w-]{16,}",
    "lsv2_": r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{30,}",
    # Amazon
    "akia": r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])",
    "asia": r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])",
    "abia": r"ABIA[A-Z0-9]{16}(?![A-Za-z0-9])",
    "acca": r"ACCA[A-Z0-9]{16}(?![A-Za-z0-9])",
    "a3t": r"A3T[A-Z0-9]{17}(?![A-Za-z0-9])",
    "absk": r"ABSK[A-Za-z0-9+/]{100,300}={0,2}",
    "bedrock-api-key-": r"bedrock-api-key-[A-Za-z0-9+/=]{16,}",
    # where code lives
    "ghp_": r"ghp_[A-Za-z0-9]{20,}",
    "gho_": r"gho_[A-Za-z0-9]{20,}",
    "ghu_": r"ghu_[A-Za-z0-9]{20,}",
    "ghs_": r"ghs_[A-Za-z0-9]{20,}",
    "ghr_": r"ghr_[A-Za-z0-9]{20,}",
    "github_pat_": r"github_pat_\w{20,}",
    "glpat-": r"glpat-[\w.-]{16,}",
    "gldt-": r"gldt-[\w-]{16,}",
    "glrt-": r"glrt-[\w.-]{16,}",
    "glrtr-": r"glrtr-[\w-]{16,}",
    "glcbt-": r"glcbt-[\w-]{16,}",
    "glptt-": r"glptt-[\w-]{16,}",
    "glft-": r"glft-[\w-]{16,}",
    "glsoat-": r"glsoat-[\w-]{16,}",
    "glimt-": r"glimt-[\w-]{16,}",
    "glagent-": r"glagent-[\w-]{16,}",
    "gloas-": r"gloas-[\w-]{16,}",
    "glffct-": r"glffct-[\w-]{16,}",
    "gr1348941": r"GR1348941[\w-]{16,}",
    "atatt3": r"ATATT3[\w=-]{100,}",
    "atbb": r"ATBB[A-Za-z0-9]{28,}",
    # packages and builds
    "npm_": r"npm_[A-Za-z0-9]{30,}",
    "pypi-age": r"pypi-AgE[\w-]{16,}",
    "rubygems_": r"rubygems_[a-f0-9]{40,}",
    "clojars_": r"CLOJARS_[a-zA-Z0-9]{50,}",
    "dckr_": r"dckr_(?:pat|oat)_[\w-]{20,}",
    "ccipat_": r"CCIPAT_[A-Za-z0-9_]{30,}",
    "pul-": r"pul-[a-f0-9]{40}",
    "akcp": r"AKCp[A-Za-z0-9]{60,}",
    "cfpat-": r"CFPAT-[\w-]{40,}",
    # messages
    "xox": r"xox[a-z]-[A-Za-z0-9-]{10,}",
    "xoxe.": r"xoxe\.xox[bp]-[A-Za-z0-9-]{10,}",
    "xapp-": r"xapp-\d-[A-Za-z0-9-]{10,}",
    "sg.": r"SG\.[\w-]{16,64}\.[\w-]{16,}",
    "key-": r"key-[0-9a-f]{32}(?![0-9a-z])",
    "sk": r"SK[0-9a-f]{32}(?![0-9A-Za-z])",  # Twilio
    "whsec_": r"whsec_[A-Za-z0-9+/=]{24,}",
    # payments
    "sk_": r"sk_(?:test|live|prod)_[A-Za-z0-9]{10,}",
    "rk_": r"rk_(?:test|live|prod)_[A-Za-z0-9]{10,}",
    "pk_": r"pk_(?:test|live|prod)_[A-Za-z0-9]{10,}",
    "sq0": r"sq0(?:atp|csp|idp)-[\w-]{20,}",
    "shp": r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    "access-": r"access-(?:sandbox|development|production)-[0-9a-f-]{36}",
    # Google and the other clouds
    "aiza": r"AIza[\w-]{30,}",
    "gocspx-": r"GOCSPX-[\w-]{20,}",
    "ya29.": r"ya29\.[\w-]{20,}",
    "1//0": r"1//0[\w-]{30,}",
    "dop_v1_": r"dop_v1_[a-f0-9]{64}",
    "doo_v1_": r"doo_v1_[a-f0-9]{64}",
    "dor_v1_": r"dor_v1_[a-f0-9]{64}",
    "hrku-": r"HRKU-[\w-]{30,}",
    "dapi": r"dapi[a-f0-9]{32}(?:-\d)?(?![0-9a-z])",
    "ltai": r"LTAI[A-Za-z0-9]{16,}",
    "flyv1 ": r"FlyV1 (fm\d[\w+/=,-]{30,})",
    "fo1_": r"fo1_[\w-]{40,}",
    "pscale_": r"pscale_(?:tkn|pw|oauth)_[\w.=-]{30,}",
    "sbp_": r"sbp_[a-f0-9]{40}",
    "sb_secret_": r"sb_secret_[\w-]{20,}",
    "v1.0-": r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}",
    # vaults and observability
    "hvs.": r"hvs\.[\w-]{24,}",
    "hvb.": r"hvb\.[\w-]{24,}",
    "age-secret-key-1": r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    "ops_eyj": r"ops_eyJ[\w+/=-]{50,}",
    "dp.": r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.]{30,}",
    "glsa_": r"glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}",
    "glc_": r"glc_[A-Za-z0-9+/=]{32,}",
    "nrak-": r"NRAK-[A-Z0-9]{27}",
    "nrii-": r"NRII-[\w-]{32}",
    "sntrys_": r"sntrys_[\w+/=]{30,}",
    "sntryu_": r"sntryu_[a-f0-9]{64}",
    "dt0c01.": r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}",
    "pmak-": r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}",
    # work
    "lin_api_": r"lin_api_[A-Za-z0-9]{30,}",
    "ntn_": r"ntn_[A-Za-z0-9]{40,}",
    "secret_": r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])",
    "figd_": r"figd_[\w-]{30,}",
    "sgp_": r"sgp_(?:[a-fA-F0-9]{16}_)?[a-fA-F0-9]{40}",
    "tfp_": r"tfp_[\w=.-]{40,}",
    "pat": r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}",
    # signed tokens and headers
    "eyj": r"eyJ[\w-]{8,512}\.eyJ[\w-]{8,8192}\.[\w-]{8,}",
    "bearer": r"(?i:bearer)[ \t]{1,8}((?=[^\s\d]{0,200}\d|[^\sA-Z]{0,200}[A-Z])[\w.~+/=-]{16,})",
    # lines of a shell, and files that programs read
    "aws_secret_access_key ": r"aws_secret_access_key[ ]+([A-Za-z0-9/+=]{30,})",
    "aws_session_token ": r"aws_session_token[ ]+([A-Za-z0-9/+=]{30,})",
    "sshpass": r"sshpass[ ]+-p[ ]?(\S{3,200})",
    "login": r"login[ \t]+\S{1,100}[ \t]+password[ \t]+(\S{3,200})",
    "-pass": r"-pass(?:in|out)?[ ]+[\"']?pass:([^\s\"']{3,200})",
    "redis-cli": r"redis-cli[ ][^\n;&|]{0,100}?-a[ ]?([^\s;&|]{4,200})",
    "mysql": r"mysql(?:dump|admin)?[ ][^\n;&|]{0,100}?(?<=[ ])-p([^\s;&|\"'][^\s;&|]{3,200})",
}

# these stand anywhere, also inside a word
INSIDE: dict[str, str] = {
    # user:password@ in a URL, or a token alone
    "://": r"://((?!\$)[^\s/:@\"'<>]{0,256}:(?![\${<*])[^\s/@\"'<>]{1,256}|[A-Za-z0-9_-]{20,256})@",
    "hooks.slack.com/": r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{20,})",
    "/api/webhooks/": r"/api/webhooks/(\d{10,24}/[\w-]{30,})",  # Discord
    ".webhook.office.com/": r"\.webhook\.office\.com/webhookb2/([\w@-]{36,}/[\w/-]{30,})",
    ":aa": r":(AA[\w-]{32,36})(?![\w-])",  # Telegram's bots
    "q~": r"Q~([\w~.-]{31,34})(?![\w~-])",  # Azure's clients
    ".atlasv1.": r"\.atlasv1\.([\w=-]{40,})",
    '"auth': r"\"auth\\*\"\s{0,3}:\s{0,3}\\*\"([A-Za-z0-9+/]{8,512}={0,2})\\*\"",  # Docker's config.json
    "sig=": r"(?<=[?&])sig=([\w%+/=-]{30,})",  # a signed URL of Azure
    "x-amz-signature=": r"(?i:x-amz-signature)=([a-f0-9]{64})",
    "x-goog-signature=": r"(?i:x-goog-signature)=([a-f0-9]{64,})",
}
