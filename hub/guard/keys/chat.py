"""Keys and webhooks of chat, social and mail services."""

from __future__ import annotations

from typing import Final

from amux.hub.guard.rules import Rule, secret

RULES: Final[tuple[Rule, ...]] = (
    secret(
        "slack-token",
        r"xox[abposre](?:\.xox[bp])?-(?:[0-9]-)?[A-Za-z0-9-]{20,256}|xapp-[0-9]{1,4}-[A-Za-z0-9]{6,48}-[A-Za-z0-9]{8,24}-[A-Za-z0-9]{24,80}",
        hints=("xox", "xapp-"),
        source="Slack, token types",
        positive=(
            "xoxb-<12 digit>-<12 digit>-<24 alnum>",
            "xapp-1-A<10 upper>-<13 digit>-<64 hex>",
        ),
        negative=("xoxb-your-token",),
    ),
    secret(
        "slack-webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_-]{8,16}/[A-Za-z0-9_-]{8,24}/[A-Za-z0-9_-]{16,64}",
        hints=("hooks.slack.com/",),
        source="Slack, incoming webhooks",
        positive=("https://hooks.slack.com/services/T<10 upper>/B<10 upper>/<24 alnum>",),
        negative=("hooks.slack.com/services/T000/B000/XXXX",),
    ),
    secret(
        "discord-bot-token",
        r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}",
        hints=(".",),
        source="Discord, bot tokens; trufflehog: discordbottoken",
        positive=("M<23 urlsafe>.G<5 alnum>.<38 urlsafe>",),
        negative=("MyVeryLongModuleNameHere.parser.parse_everything",),
    ),
    secret(
        "discord-webhook",
        r"discord(?:app)?\.com/api/webhooks/[0-9]{17,20}/[A-Za-z0-9_-]{60,80}",
        hints=("/api/webhooks/",),
        source="Discord, webhook resource",
        positive=("https://discord.com/api/webhooks/<18 digit>/<68 urlsafe>",),
        negative=("discord.com/api/webhooks/{id}/{token}",),
    ),
    secret(
        "telegram-bot-token",
        r"[0-9]{8,10}:A[A-Za-z0-9_-]{34}",
        hints=(":A",),
        source="Telegram Bot API, authorizing your bot",
        positive=("<10 digit>:AA<33 urlsafe>", "<9 digit>:A<34 urlsafe>"),
        negative=("123456:ABC-DEF",),
    ),
    secret(
        "feishu-webhook",
        r"open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/[a-f0-9-]{32,36}",
        hints=("/open-apis/bot/v2/hook/",),
        source="Feishu and Lark, custom bots",
        positive=(
            "https://open.feishu.cn/open-apis/bot/v2/hook/<8 hex>-<4 hex>-<4 hex>-<4 hex>-<12 hex>",
        ),
        negative=("open.feishu.cn/open-apis/bot/v2/hook/<token>",),
    ),
    secret(
        "dingtalk-webhook",
        r"oapi\.dingtalk\.com/robot/send\?access_token=[a-f0-9]{64}",
        hints=("oapi.dingtalk.com/",),
        source="DingTalk, custom robots",
        positive=("https://oapi.dingtalk.com/robot/send?access_token=<64 hex>",),
        negative=("oapi.dingtalk.com/robot/send?access_token=TOKEN",),
    ),
    secret(
        "wecom-webhook",
        r"qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=[a-f0-9-]{32,36}",
        hints=("qyapi.weixin.qq.com/",),
        source="WeCom, group robots",
        positive=(
            "qyapi.weixin.qq.com/cgi-bin/webhook/send?key=<8 hex>-<4 hex>-<4 hex>-<4 hex>-<12 hex>",
        ),
        negative=("qyapi.weixin.qq.com/cgi-bin/webhook/send?key=KEY",),
    ),
    secret(
        "teams-webhook",
        r"[a-z0-9-]{1,63}\.webhook\.office\.com/webhookb2/[a-f0-9@-]{70,80}"
        r"/IncomingWebhook/[a-f0-9]{32}/[a-f0-9-]{36}",
        hints=(".webhook.office.com/",),
        source="Microsoft Teams, incoming webhooks; gitleaks: microsoft-teams-webhook",
        positive=(
            (
                "https://acme.webhook.office.com/webhookb2/<36 hex>@<36 hex>"
                "/IncomingWebhook/<32 hex>/<36 hex>"
            ),
        ),
        negative=("acme.webhook.office.com/webhookb2/",),
    ),
    secret(
        "matrix-token",
        r"syt_[A-Za-z0-9_=-]{2,128}_[A-Za-z]{20}_[A-Za-z0-9]{6}",
        hints=("syt_",),
        source="Synapse, access token format",
        positive=("syt_<12 alnum>_<20 alpha>_<6 alnum>",),
        negative=("syt_token",),
    ),
    secret(
        "facebook-token",
        r"EAA[A-Za-z0-9]{100,500}",
        hints=("EAA",),
        source="Meta, access tokens; gitleaks: facebook-page-access-token",
        positive=("EAA<160 alnum>",),
        negative=("EAA is a region",),
    ),
    secret(
        "twitter-bearer",
        r"A{20,30}[A-Za-z0-9]{10,60}%[A-Za-z0-9%]{20,100}",
        hints=("AAAAAAAAAAAAAAAAAAAA",),
        source="X, app-only bearer tokens",
        positive=("AAAAAAAAAAAAAAAAAAAAAF<20 alnum>%2B<40 alnum>%3D<12 alnum>",),
        negative=("AAAAAAAAAAAAAAAAAAAAAF<60 alnum>",),
    ),
    secret(
        "sendgrid-key",
        r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
        hints=("SG.",),
        source="SendGrid, API keys",
        positive=("SG.<22 urlsafe>.<43 urlsafe>",),
        negative=("SG.key",),
    ),
    secret(
        "mailgun-key",
        r"key-[a-f0-9]{32}",
        hints=("key-",),
        source="Mailgun, API keys",
        positive=("key-<32 hex>",),
        negative=("key-value pairs",),
    ),
    secret(
        "mailchimp-key",
        r"[a-f0-9]{32}-us[0-9]{1,2}",
        hints=("-us",),
        source="Mailchimp, API keys",
        positive=("<32 hex>-us14",),
        negative=("eu-us14",),
    ),
    secret(
        "twilio-key",
        r"SK[a-f0-9]{32}",
        hints=("SK",),
        source="Twilio, API keys",
        positive=("SK<32 hex>",),
        negative=("SK is a country code",),
    ),
)
